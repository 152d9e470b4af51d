"""Datasets: one file per source, found by its name; all of them give the same `Dataset`."""

import dataclasses
import importlib
import pkgutil
import types
from collections.abc import Sequence

import numpy as np

from memo_jax.datasets._encoded import EncodedImages
from memo_jax.errors import UserError, expect_one_of

Images = np.ndarray | EncodedImages
"""uint8 `[N, H, W, C]`, in memory or decoded when they are taken."""


@dataclasses.dataclass(frozen=True)
class Split:
    """Images uint8 `[N, H, W, C]` and labels int32 `[N]` in 0..K-1."""

    images: Images
    labels: np.ndarray

    def of(self, first: int, stop: int) -> "Split":
        """The images of the classes first, ..., stop - 1, in their present order."""
        return self.only(np.flatnonzero((self.labels >= first) & (self.labels < stop)))

    def only(self, rows: np.ndarray) -> "Split":
        """The images at `rows` int `[n]`."""
        encoded = isinstance(self.images, EncodedImages)
        return Split(self.images.only(rows) if encoded else self.images[rows], self.labels[rows])

    def __len__(self) -> int:
        return len(self.labels)


@dataclasses.dataclass(frozen=True)
class Dataset:
    """A labelled image set. The test images are in memory, those to train on may stay encoded.

    mean, std: per channel, of pixel values scaled to 0..1; images are normalised with them.
    """

    name: str
    train: Split
    test: Split
    class_names: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]

    @property
    def num_classes(self) -> int:
        return len(self.class_names)

    @property
    def image_shape(self) -> tuple[int, int, int]:
        return self.train.images.shape[1:]

    def in_order(self, class_order: np.ndarray) -> "Dataset":
        """Renumbers the classes by their place in `class_order` `[K]` and sorts by class.

        Within a class the images keep their order, so herding sees them as they were read.
        """
        place = np.argsort(class_order)

        def renumber(split: Split) -> Split:
            labels = place[split.labels].astype(np.int32)
            return Split(split.images, labels).only(np.argsort(labels, kind="stable"))

        names = tuple(self.class_names[old] for old in class_order)
        return dataclasses.replace(
            self, train=renumber(self.train), test=renumber(self.test), class_names=names
        )


def blank(
    name: str, image_shape: Sequence[int], train: Sequence[int], test: Sequence[int]
) -> Dataset:
    """Black images `[H, W, C]` that take no memory: enough to plan a run.

    train, test: how many images each class has.
    """

    def split(sizes: Sequence[int]) -> Split:
        images = np.broadcast_to(np.uint8(0), (sum(sizes), *image_shape))
        return Split(images, np.repeat(np.arange(len(sizes), dtype=np.int32), sizes))

    channels = image_shape[-1]
    return Dataset(
        name=name,
        train=split(train),
        test=split(test),
        class_names=tuple(map(str, range(len(train)))),
        mean=(0.5,) * channels,
        std=(0.25,) * channels,
    )


@dataclasses.dataclass(frozen=True)
class Reading:
    """How image files become arrays (configs/base.py explains these settings).

    Datasets that come as arrays have one size, which image_size may only repeat.
    workers: None for one process per core.
    """

    image_size: int | None = None
    on_bad_image: str = "error"
    streaming: str = "auto"
    workers: int | None = None


AS_THEY_ARE = Reading()
ON_BAD_IMAGE = ("error", "skip")
STREAMING = ("auto", "always", "never")


def names() -> list[str]:
    """The datasets there are: the public modules of this package."""
    return sorted(m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_"))


def load(name: str, path: str, source: str, reading: Reading = AS_THEY_ARE) -> Dataset:
    """Loads a dataset by name; `path` and `source` as explained in configs/base.py.

    Raises UserError for an unknown name, for data that are missing or damaged, and for a size
    that they do not have.
    """
    dataset = _module(name).load(path, source, reading)
    height, width, _ = dataset.image_shape
    if reading.image_size not in (None, height):
        raise UserError(
            f"dataset.image_size: expected none for {name}, whose images have {height} x {width} "
            f"pixels and are not resized, found {reading.image_size}; unset it"
        )
    return dataset


def outline(name: str, path: str, source: str, reading: Reading = AS_THEY_ARE) -> Dataset:
    """As `load`, but with black images where a dataset can tell their numbers without reading them.

    Classes are in the order in which `load` has them.
    """
    module = _module(name)
    if hasattr(module, "outline"):
        return module.outline(path, source, reading)
    return load(name, path, source, reading)


def _module(name: str) -> types.ModuleType:
    expect_one_of("dataset.name", name, names())
    return importlib.import_module(f"memo_jax.datasets.{name}")
