"""Folders of images, `train/CLASS/FILE` and `val/CLASS/FILE` (or `test`), as a dataset."""

import dataclasses
import logging
import statistics
from pathlib import Path

import numpy as np

from memo_jax.datasets import (
    Dataset,
    Images,
    Reading,
    Split,
    _decode,
    _folder_images,
    _folder_index,
    _records,
    blank,
)
from memo_jax.datasets._encoded import EncodedImages, Files, Source
from memo_jax.datasets._folder_index import Index
from memo_jax.datasets._sources import Absent, first_present
from memo_jax.errors import UserError
from memo_jax.host_memory import available_memory

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Of ImageNet's training images, as everybody uses them."""

_SAMPLE, _LARGEST = 256, 224


@dataclasses.dataclass(frozen=True)
class Folder:
    """A dataset of this layout.

    directories: where it may be, below the path that the config names, which is tried first.
    image_size: in pixels; None takes that of the images, up to 224.
    classes: those to read, in this order; None takes all there are, sorted.
    prepared: its name in tensorflow-datasets, if it may come from there.
    official: numbers of classes, training and test images; others are told in a warning.
    """

    name: str
    directories: tuple[str, ...] = ()
    image_size: int | None = None
    classes: tuple[str, ...] | None = None
    prepared: str | None = None
    official: tuple[int, int, int] | None = None


Listing = tuple[Path, Index, list[Source]]
"""Where a dataset was found, what it holds, its training and its test images."""


def load(spec: Folder, path: str, source: str, reading: Reading) -> Dataset:
    """Finds, lists and decodes the images.

    Raises UserError if they are nowhere, are too large for the memory, if classes are missing and,
    unless such images are to be skipped, if one cannot be read.
    """
    root, index, sources = _listed(spec, path, source)
    _warn_unless_official(spec, root, index)
    folder, size = _folder_images.cache_folder(root), _size(spec, sources[0], reading)
    stays_encoded = _stays_encoded(root, index, size, reading)
    splits, bad = [], {}
    for source, files in zip(sources, (index.train, index.test)):
        name = f"{spec.name}-{'train' if files is index.train else 'test'}"
        if files is index.train and stays_encoded:
            found = _folder_images.checked(source, files, name, folder)
            images = EncodedImages(source, size, reading.workers)
        else:
            images, found = _folder_images.decoded(source, files, size, name, folder)
        splits.append(_readable(files, images, found))
        bad |= found
    if bad:
        _tell_bad(root, bad, len(index), reading)
        _expect_all_classes(root, index, splits)
    return Dataset(spec.name, *splits, tuple(index.classes), MEAN, STD)


def outline(spec: Folder, path: str, source: str, reading: Reading) -> Dataset:
    """As `load`, but black: images of a folder are listed, and nothing is decoded or kept.

    Raises UserError if they are nowhere or if classes are missing.
    """
    _, index, sources = _listed(spec, path, source, keep=False)
    size = _size(spec, sources[0], reading)
    counts = [np.bincount(files.labels) for files in (index.train, index.test)]
    return blank(spec.name, (size, size, 3), *counts)


def _listed(spec: Folder, path: str, source: str, keep: bool = True) -> Listing:
    """keep: whether the listing of a folder is kept for the next time."""
    root = Path(path).expanduser().absolute()
    remedy = (
        "Put images into train/CLASS/ and val/CLASS/ of a folder and say where it is with "
        "--config.dataset.path=DIR"
    )
    places = {"local": lambda: _local(spec, root, keep)}
    if spec.prepared:
        places["tfds"] = lambda: _records.read(spec.prepared, spec.classes)
    return first_present(spec.name, places, source, remedy)


def _local(spec: Folder, path: Path, keep: bool) -> Listing:
    candidates = [path, *(path / directory for directory in spec.directories)]
    root = next(filter(_folder_index.is_folder, candidates), None)
    if root is None:
        raise Absent(f"no train/ and val/ in {', '.join(map(str, candidates))}")
    folder = _folder_images.cache_folder(root) if keep else None
    index = _folder_index.read(root, spec.classes, folder and folder / f"{spec.name}.json")
    return root, index, [Files(str(root), files.paths) for files in (index.train, index.test)]


def _size(spec: Folder, train: Source, reading: Reading) -> int:
    return reading.image_size or spec.image_size or _own_size(train)


def _stays_encoded(root: Path, index: Index, size: int, reading: Reading) -> bool:
    """Whether the images to train on are decoded when they are needed, not all at once.

    Raises UserError if what is decoded at once does not fit into memory.
    """
    free = available_memory()
    stays = {
        "always": True,
        "never": False,
        "auto": not _folder_images.fits(len(index), size, free),
    }[reading.streaming]
    at_once = len(index.test.paths) if stays else len(index)
    _folder_images.check_memory(root, at_once, size, free)
    return stays


def _readable(files: _folder_index.Files, images: Images, bad: dict[str, str]) -> Split:
    split = Split(images, np.array(files.labels, np.int32))
    if not bad:
        return split
    return split.only(np.flatnonzero([path not in bad for path in files.paths]))


def _own_size(source: Source) -> int:
    """The median of the shorter sides of some images spread over all classes, at most 224."""
    sides = []
    for row in range(0, len(source), -(-len(source) // _SAMPLE)):
        try:
            sides.append(min(_decode.dimensions(source[row])))
        except _decode.BadImage:
            continue  # told when all are decoded
    return min(_LARGEST, statistics.median_low(sides or [_LARGEST]))


def _tell_bad(root: Path, bad: dict[str, str], total: int, reading: Reading) -> None:
    """Stops, or warns, as images cannot be read: path and reason of each."""
    path, reason = next(iter(bad.items()))
    line = f"{root}: {len(bad)} of {total} images cannot be read, such as {path} ({reason})"
    if reading.on_bad_image == "error":
        raise UserError(
            f"{line}; replace or remove them, or leave them out with "
            "--config.dataset.on_bad_image=skip"
        )
    logging.getLogger("memo_jax").warning("%s; left out", line)


def _expect_all_classes(root: Path, index: Index, splits: list[Split]) -> None:
    for split in splits:
        lost = sorted(set(range(len(index.classes))) - set(split.labels.tolist()))
        if lost:
            raise UserError(
                f"{root}: expected images of all {len(index.classes)} classes, found none that "
                f"can be read of {len(lost)} classes such as {index.classes[lost[0]]!r}; replace "
                "or remove them"
            )


def _warn_unless_official(spec: Folder, root: Path, index: Index) -> None:
    found = len(index.classes), len(index.train.paths), len(index.test.paths)
    if spec.official and found != spec.official:
        # A part of it is fine for a trial, but nobody should compare its accuracy unawares.
        words = ["{:,} classes, {:,} training and {:,} test images".format(*n)
                 for n in (found, spec.official)]  # fmt: skip
        message = "%s: %s instead of the official %s; results are not comparable"
        logging.getLogger("memo_jax").warning(message, root, *words)
