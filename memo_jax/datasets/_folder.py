"""Folders of images, `train/CLASS/FILE` and `val/CLASS/FILE` (or `test`), as a dataset."""

import dataclasses
import logging
import statistics
from collections.abc import Callable
from pathlib import Path

import numpy as np

from memo_jax.datasets import (
    Dataset,
    Reading,
    Split,
    _decode,
    _folder_images,
    _folder_index,
    blank,
)
from memo_jax.datasets._folder_index import Files, Index
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
    official: numbers of classes, training and test images; others are told in a warning.
    """

    name: str
    directories: tuple[str, ...] = ()
    image_size: int | None = None
    classes: tuple[str, ...] | None = None
    official: tuple[int, int, int] | None = None


def load(spec: Folder, path: str, source: str, reading: Reading) -> Dataset:
    """Finds, lists and decodes the images.

    Raises UserError if they are nowhere, are too large for the memory, if classes are missing and,
    unless such images are to be skipped, if one cannot be read.
    """
    return _first(spec, path, source, lambda root: _local(spec, root, reading))


def outline(spec: Folder, path: str, source: str, reading: Reading) -> Dataset:
    """As `load`, but black: files are listed, and nothing is decoded or kept.

    Raises UserError if they are nowhere or if classes are missing.
    """

    def listed(path: Path) -> Dataset:
        root = _root(spec, path)
        index = _folder_index.read(root, spec.classes, kept=None)
        size = reading.image_size or spec.image_size or _own_size(root, index.train)
        sizes = [np.bincount(files.labels) for files in (index.train, index.test)]
        return blank(spec.name, (size, size, 3), *sizes)

    return _first(spec, path, source, listed)


def _first(spec: Folder, path: str, source: str, read: Callable[[Path], Dataset]) -> Dataset:
    root = Path(path).expanduser().absolute()
    remedy = (
        "Put images into train/CLASS/ and val/CLASS/ of a folder and say where it is with "
        "--config.dataset.path=DIR"
    )
    return first_present(spec.name, {"local": lambda: read(root)}, source, remedy)


def _root(spec: Folder, path: Path) -> Path:
    """The first of the directories that has the layout."""
    candidates = [path, *(path / directory for directory in spec.directories)]
    root = next(filter(_folder_index.is_folder, candidates), None)
    if root is None:
        raise Absent(f"no train/ and val/ in {', '.join(map(str, candidates))}")
    return root


def _local(spec: Folder, path: Path, reading: Reading) -> Dataset:
    root = _root(spec, path)
    folder = _folder_images.cache_folder(root)
    index = _folder_index.read(root, spec.classes, folder and folder / f"{spec.name}.json")
    _warn_unless_official(spec, root, index)
    size = reading.image_size or spec.image_size or _own_size(root, index.train)
    _folder_images.check_memory(root, len(index), size, available_memory())
    splits, bad = [], {}
    for name, files in (("train", index.train), ("test", index.test)):
        images, found = _folder_images.decoded(root, files, size, f"{spec.name}-{name}", folder)
        splits.append(_readable(files, images, found))
        bad |= found
    if bad:
        _tell_bad(root, bad, len(index), reading)
        _expect_all_classes(root, index, splits)
    return Dataset(spec.name, *splits, tuple(index.classes), MEAN, STD)


def _readable(files: Files, images: np.ndarray, bad: dict[str, str]) -> Split:
    labels = np.array(files.labels, np.int32)
    if not bad:
        return Split(images, labels)
    good = np.array([path not in bad for path in files.paths])
    return Split(images[good], labels[good])


def _own_size(root: Path, files: Files) -> int:
    """The median of the shorter sides of some images spread over all classes, at most 224."""
    sides = []
    for path in files.paths[:: -(-len(files.paths) // _SAMPLE)]:
        try:
            sides.append(min(_decode.dimensions(root / path)))
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
