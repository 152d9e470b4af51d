"""Tiny-ImageNet (Le and Yang, 2015): 100,000 and 10,000 images of 200 classes, 64x64.

As the archive has it (`train/WNID/images/*`, `val/images/*` with `val_annotations.txt`), or sorted
into `val/WNID/*`.
"""

from memo_jax.datasets import AS_THEY_ARE, Dataset, Reading, _folder

SPEC = _folder.Folder(
    "tinyimagenet", ("tiny-imagenet-200",), image_size=64, official=(200, 100_000, 10_000)
)


def load(path: str, source: str, reading: Reading = AS_THEY_ARE) -> Dataset:
    """Places and errors as in `_folder.load`; the classes that there are."""
    return _folder.load(SPEC, path, source, reading)
