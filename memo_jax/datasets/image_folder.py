"""Images of one's own: `train/CLASS/FILE` and `val/CLASS/FILE` (or `test`); JPEG, PNG or WebP.

Classes are named by their folders. Images have the median of their shorter sides, at most 224
pixels, unless `dataset.image_size` says otherwise.
"""

from memo_jax.datasets import AS_THEY_ARE, Dataset, Reading, _folder

SPEC = _folder.Folder("image_folder")


def load(path: str, source: str, reading: Reading = AS_THEY_ARE) -> Dataset:
    """The folder `path`; errors as in `_folder.load`."""
    return _folder.load(SPEC, path, source, reading)


def outline(path: str, source: str, reading: Reading = AS_THEY_ARE) -> Dataset:
    """Black images, as many and as large as those of the folder; as `_folder.outline`."""
    return _folder.outline(SPEC, path, source, reading)
