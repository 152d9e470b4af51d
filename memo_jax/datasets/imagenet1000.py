"""ImageNet-1000 (ILSVRC 2012; Russakovsky et al., 2015): 1,281,167 and 50,000 images.

From a folder of images, or as tensorflow-datasets prepares `imagenet2012` in array_record files.
"""

from memo_jax.datasets import AS_THEY_ARE, Dataset, Reading, _folder, _imagenet

SPEC = _folder.Folder(
    "imagenet1000",
    _imagenet.DIRECTORIES,
    _imagenet.SIDE,
    _imagenet.wnids(),
    _imagenet.PREPARED,
    official=(1000, 1_281_167, 50_000),
)


def load(path: str, source: str, reading: Reading = AS_THEY_ARE) -> Dataset:
    """Places and errors as in `_folder.load`."""
    return _folder.load(SPEC, path, source, reading)
