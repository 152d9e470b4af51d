"""CIFAR-10 and CIFAR-100: found on this disk or downloaded, read from the official files."""

import dataclasses
import logging
from pathlib import Path
from typing import Any

import numpy as np

from memo_jax.datasets import Dataset, Split, _archive, _tfds
from memo_jax.datasets._pickles import read_dict
from memo_jax.datasets._sources import Absent, first_present
from memo_jax.errors import UserError

_CHANNELS, _SIDE = 3, 32


@dataclasses.dataclass(frozen=True)
class Cifar:
    """One of the two; they differ in names and numbers only.

    directory: of the official files, pickled dictionaries.
    labels_key, names_key: entries of the files of images and of the meta file.
    sizes: images for training and for testing.
    """

    name: str
    num_classes: int
    directory: str
    train_files: tuple[str, ...]
    test_files: tuple[str, ...]
    meta_file: str
    labels_key: str
    names_key: str
    sizes: tuple[int, int]
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    url: str
    md5: str


def load(spec: Cifar, path: str, source: str) -> Dataset:
    """Reads the dataset from the first place that has it, or from the one that `source` names.

    local: the official directory, in `path` or `path` itself.
    tfds: prepared by tensorflow-datasets in its own place.
    download: the official archive, unpacked into `path` and found there as local from then on.

    Raises UserError if it is nowhere, or damaged where it was found.
    """
    root = Path(path).expanduser().absolute()
    sources = {
        "local": lambda: _read_directory(spec, _local_directory(spec, root)),
        "tfds": lambda: _read_prepared(spec),
        "download": lambda: _read_directory(
            spec, _archive.fetch(spec.url, spec.md5, root, spec.directory)
        ),
    }
    remedy = (
        f"Put the directory {spec.directory} of {spec.url} into {root}, "
        "or say where it is with --config.dataset.path=DIR"
    )
    return first_present(spec.name, sources, source, remedy)


def _local_directory(spec: Cifar, root: Path) -> Path:
    inside = root / spec.directory
    if inside.is_dir():
        return inside
    if root.is_dir() and (root.name == spec.directory or (root / spec.meta_file).is_file()):
        return root
    raise Absent(f"no directory {inside}")


def _read_directory(spec: Cifar, directory: Path) -> Dataset:
    def read(files: tuple[str, ...]) -> Split:
        parts = [_read_batch(spec, directory / file) for file in files]
        images = np.concatenate([part.images for part in parts])
        return Split(images, np.concatenate([part.labels for part in parts]))

    train, test = read(spec.train_files), read(spec.test_files)
    meta = directory / spec.meta_file
    names = _checked_names(spec, meta, _entry(meta, _read_table(meta), spec.names_key))
    return _dataset(spec, train, test, names, directory)


def _read_prepared(spec: Cifar) -> Dataset:
    splits, names, directory = _tfds.read(spec.name)
    train, test = (_checked(spec, directory / name, *splits[name]) for name in ("train", "test"))
    names = _checked_names(spec, directory / "label.labels.txt", names)
    return _dataset(spec, train, test, names, directory)


def _read_batch(spec: Cifar, file: Path) -> Split:
    """One file: a row of pixels for each image, channel by channel, and a list of labels."""
    table = _read_table(file)
    pixels = _array(file, table, "data")
    row = _CHANNELS * _SIDE * _SIDE
    if pixels.ndim != 2 or pixels.shape[1] != row:
        raise _damaged(file, f"pixels of shape [N, {row}]", _describe(pixels))
    images = pixels.reshape(-1, _CHANNELS, _SIDE, _SIDE).transpose(0, 2, 3, 1)
    labels = _array(file, table, spec.labels_key)
    return _checked(spec, file, np.ascontiguousarray(images), labels)


def _read_table(file: Path) -> dict[str, Any]:
    try:
        return read_dict(file)
    except ValueError as found:
        raise _damaged(file, "a pickled dictionary", str(found)) from found


def _entry(file: Path, table: dict[str, Any], key: str) -> Any:
    if key not in table:
        raise _damaged(file, f"the entry {key!r}", f"only {sorted(map(str, table))}")
    return table[key]


def _array(file: Path, table: dict[str, Any], key: str) -> np.ndarray:
    value = _entry(file, table, key)
    try:
        return np.asarray(value)
    except ValueError as error:  # a list of lists that differ in length
        raise _damaged(file, f"an array as {key!r}", _describe(value)) from error


def _checked(spec: Cifar, origin: Path, images: np.ndarray, labels: np.ndarray) -> Split:
    """The arrays as a split, if they are what the contract of datasets asks for."""
    if images.dtype != np.uint8 or images.shape[1:] != (_SIDE, _SIDE, _CHANNELS):
        expected = f"images [N, {_SIDE}, {_SIDE}, {_CHANNELS}] of uint8"
        raise _damaged(origin, expected, _describe(images))
    if labels.dtype.kind not in "iu" or labels.shape != images.shape[:1]:
        raise _damaged(origin, f"{len(images)} whole numbers as labels", _describe(labels))
    outside = labels[(labels < 0) | (labels >= spec.num_classes)]
    if outside.size:
        raise _damaged(origin, f"labels in 0..{spec.num_classes - 1}", f"the label {outside[0]}")
    return Split(images, labels.astype(np.int32))


def _checked_names(spec: Cifar, origin: Path, names: Any) -> tuple[str, ...]:
    if not isinstance(names, list) or len(names) != spec.num_classes:
        raise _damaged(origin, f"a list of {spec.num_classes} class names", _describe(names))
    return tuple(n.decode(errors="replace") if isinstance(n, bytes) else str(n) for n in names)


def _dataset(
    spec: Cifar, train: Split, test: Split, names: tuple[str, ...], origin: Path
) -> Dataset:
    """Both splits together, each of which must have images of all classes."""
    for kind, split, size in zip(("train", "test"), (train, test), spec.sizes, strict=True):
        empty = sorted(set(range(spec.num_classes)) - set(split.labels.tolist()))
        if empty:
            expected = f"{kind} images of all {spec.num_classes} classes"
            raise _damaged(origin, expected, f"none of {len(empty)} classes such as {empty[0]}")
        if len(split) != size:
            # A part of it is fine for a trial, but nobody should compare its accuracy unawares.
            message = "%s: %d %s images instead of the official %d; results are not comparable"
            logging.getLogger(__name__).warning(message, origin, len(split), kind, size)
    return Dataset(spec.name, train, test, names, spec.mean, spec.std)


def _describe(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {list(value.shape)}"
    return f"a list of {len(value)}" if isinstance(value, list) else f"{value!r:.60}"


def _damaged(place: Path, expected: str, found: str) -> UserError:
    directory = place if place.is_dir() else place.parent
    return UserError(
        f"{place}: expected {expected}, found {found}; "
        f"replace {directory}, or remove it and use --config.dataset.source=download"
    )
