"""Images that stay in their files until they are needed.

Without JAX: processes that only read images import this.
"""

import dataclasses
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

import numpy as np

from memo_jax.crops import Box
from memo_jax.datasets import _decode
from memo_jax.errors import UserError


class Source(Protocol):
    """Where encoded images come from; may be sent to other processes. root: the directory."""

    root: str

    def __len__(self) -> int:
        """How many there are."""

    def __getitem__(self, row: int) -> Path | bytes:
        """The file of an image, or its content."""

    def name(self, row: int) -> str:
        """How people find the image below the root."""

    def only(self, rows: np.ndarray) -> "Source":
        """Some of the images, int `[n]`."""


@dataclasses.dataclass(frozen=True)
class Files:
    """A Source: images in files of a folder."""

    root: str
    paths: list[str]

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, row: int) -> Path:
        return Path(self.root, self.paths[row])

    def name(self, row: int) -> str:
        return self.paths[row]

    def only(self, rows: np.ndarray) -> "Files":
        return Files(self.root, [self.paths[row] for row in rows])


@dataclasses.dataclass(frozen=True, eq=False)
class EncodedImages:
    """In use like an array uint8 `[N, size, size, 3]` whose rows are decoded when they are taken.

    workers: how many processes read them while a network is trained (memo_jax/streaming.py), None
    for one per core.
    Taking rows raises UserError for an image that cannot be read.
    """

    source: Source
    size: int
    workers: int | None

    @property
    def shape(self) -> tuple[int, int, int, int]:
        return len(self), self.size, self.size, 3

    @property
    def nbytes(self) -> int:
        """Bytes of all of them, decoded."""
        return int(np.prod(self.shape))

    def __len__(self) -> int:
        return len(self.source)

    def only(self, rows: np.ndarray) -> "EncodedImages":
        """Some of the images, int `[n]`, still encoded."""
        return dataclasses.replace(self, source=self.source.only(rows))

    def __getitem__(self, chosen: np.ndarray | slice) -> np.ndarray:
        """Their centres (_decode.decode), uint8 `[n, size, size, 3]`, decoded by all cores."""
        rows = np.arange(len(self))[chosen]
        images = np.empty((len(rows), *self.shape[1:]), np.uint8)
        # Pillow decodes and resizes outside of Python's lock, so threads do.
        with ThreadPoolExecutor(num_cores()) as pool:
            for place, image in enumerate(pool.map(self.centre, rows)):
                images[place] = image
        return images

    def centre(self, row: int) -> np.ndarray:
        """The centre of one image, uint8 `[size, size, 3]`."""
        return self._read(row, lambda file: _decode.decode(file, self.size))

    def crop(self, row: int, choose: Callable[[int, int], Box]) -> np.ndarray:
        """The part of one image that `choose(width, height)` names, as large as the others."""
        return self._read(row, lambda file: _decode.crop(file, self.size, choose))

    def _read(self, row: int, decode: Callable[[Path | bytes], np.ndarray]) -> np.ndarray:
        try:
            return decode(self.source[row])
        except _decode.BadImage as error:
            raise UserError(
                f"{self.source.root}: {self.source.name(row)} cannot be read ({error}), but could "
                "when the run began; put it back and start the same command again"
            ) from error


def num_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
