"""ImageNet-100, the first 100 classes of the alphabet, as in BiC, PODNet and DER.

Nine of them are among those of `imagenet100` too.
"""

import numpy as np

from memo_jax.datasets import AS_THEY_ARE, Dataset, Reading, _folder, _imagenet

SPEC = _imagenet.subset("imagenet100_first100", np.arange(100))


def load(path: str, source: str, reading: Reading = AS_THEY_ARE) -> Dataset:
    """From a folder of these classes or of all of ImageNet; errors as in `_folder.load`."""
    return _folder.load(SPEC, path, source, reading)
