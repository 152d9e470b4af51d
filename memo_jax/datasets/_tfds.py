"""Image sets that tensorflow-datasets has prepared on this disk; TensorFlow is not needed."""

import contextlib
import logging
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from memo_jax.datasets._sources import Absent
from memo_jax.errors import UserError

Arrays = tuple[np.ndarray, np.ndarray]


def read(name: str) -> tuple[dict[str, Arrays], list[str], Path]:
    """The images and labels of "train" and "test", the class names and where they were found.

    Images come in the order of their `id`, that of the files they were prepared from: as prepared
    they are shuffled.

    Raises Absent if nothing is prepared or tensorflow-datasets is not installed, UserError if the
    prepared files cannot be read.
    """
    root = newest(name)
    import tensorflow_datasets as tfds

    try:
        with _quiet():
            builder = tfds.builder_from_directory(root)
            splits = {split: _arrays(builder, split) for split in ("train", "test")}
        return splits, builder.info.features["label"].names, root
    except Exception as error:  # whatever tensorflow-datasets and its readers raise
        raise unreadable(root, name, error) from error


def newest(name: str) -> Path:
    """The directory of the newest version that is prepared.

    Raises Absent if nothing is prepared or tensorflow-datasets is not installed.
    """
    place = data_dir() / name
    # Looked up without tensorflow-datasets, which takes a second to import and which retries for
    # minutes over the network when a dataset is not prepared.
    versions = [info.parent for info in place.glob("*/dataset_info.json")]
    if not versions:
        raise Absent(f"nothing prepared in {place}")
    found = max(versions, key=_version)
    try:
        import tensorflow_datasets  # noqa: F401
    except ImportError as error:
        raise Absent(f"{found} needs tensorflow-datasets to be read ({error})") from error
    return found


def unreadable(root: Path, name: str, error: Exception) -> UserError:
    """What to raise when reading what is prepared has failed."""
    reason = " ".join(str(error).split())[:300]
    return UserError(
        f"{root}: expected {name} as prepared by tensorflow-datasets, found files that cannot be "
        f"read ({type(error).__name__}: {reason}); prepare it again, or choose another "
        "--config.dataset.source"
    )


def data_dir() -> Path:
    """Where tensorflow-datasets keeps its data unless told otherwise."""
    return Path(os.environ.get("TFDS_DATA_DIR", "~/tensorflow_datasets")).expanduser().absolute()


def _version(directory: Path) -> list[int]:
    return [int(part) for part in directory.name.split(".") if part.isdigit()]


def _arrays(builder: Any, split: str) -> Arrays:
    info = builder.info.splits[split]
    if builder.info.file_format.value == "tfrecord":
        decode = builder.info.features.deserialize_example_np
        examples = [decode(record) for file in info.filepaths for record in _records(file)]
    else:
        examples = list(builder.as_data_source(split))
    if len(examples) != info.num_examples:
        raise ValueError(f"{len(examples)} {split} images instead of {info.num_examples}")
    examples.sort(key=lambda example: example["id"])
    return (
        np.stack([example["image"] for example in examples]),
        np.array([example["label"] for example in examples]),
    )


def _records(file: Path) -> Iterator[bytes]:
    """The records of a TFRecord file: length (8 bytes), its checksum (4), data, checksum (4).

    The checksums (CRC-32C) are skipped: the standard library has none of that kind.
    """
    with open(file, "rb") as stream:
        while header := stream.read(12):
            (length,) = struct.unpack("<Q4x", header)
            yield stream.read(length)  # cut short, it cannot be decoded
            stream.seek(4, os.SEEK_CUR)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Drops advice on packages that would be faster."""
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
