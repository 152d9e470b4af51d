"""ImageNet-100, the 100 classes that the paper's authors draw with seed 1993."""

import numpy as np

from memo_jax.datasets import AS_THEY_ARE, Dataset, Reading, _folder, _imagenet

SPEC = _imagenet.subset("imagenet100", np.random.RandomState(1993).permutation(1000)[:100])


def load(path: str, source: str, reading: Reading = AS_THEY_ARE) -> Dataset:
    """From a folder of these classes or of all of ImageNet; errors as in `_folder.load`."""
    return _folder.load(SPEC, path, source, reading)
