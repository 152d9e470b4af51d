"""ImageNet (ILSVRC 2012) and its subsets, from one folder `train/WNID/*`, `val/WNID/*`."""

from pathlib import Path

import numpy as np

from memo_jax.datasets._folder import Folder

DIRECTORIES = ("imagenet", "ILSVRC2012", "ILSVRC/Data/CLS-LOC")
SIDE = 224
PREPARED = "imagenet2012"


def wnids() -> tuple[str, ...]:
    """The 1000 classes, sorted."""
    return tuple(Path(__file__).with_name("imagenet_wnids.txt").read_text().split())


def subset(name: str, places: np.ndarray) -> Folder:
    """The classes at `places` among the sorted 1000; they are sorted again."""
    everything = wnids()
    chosen = tuple(everything[place] for place in sorted(places.tolist()))
    return Folder(name, DIRECTORIES, SIDE, chosen, PREPARED)
