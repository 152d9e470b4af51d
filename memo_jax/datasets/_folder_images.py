"""Decodes all images of an index once: bytes in one array, kept in a file for the next run."""

import contextlib
import hashlib
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

import numpy as np
from numpy.lib.format import open_memmap

from memo_jax.datasets import _decode
from memo_jax.datasets._encoded import Source, num_cores
from memo_jax.datasets._folder_index import Files
from memo_jax.errors import UserError

_CHUNK = 64  # images that a thread decodes at a time
_TO_CHECK = 28  # pixels: so small, a JPEG is read at an eighth of its size, but to its end
_GB = 1e9
_IMAGES, _BAD = "images.npy", "bad.json"


def cache_folder(root: Path) -> Path | None:
    """Where things about a folder are kept: beside its images, else in the user's cache folder.

    None if neither can be written. A folder that nobody may write is left alone by root, too.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser())
    address = hashlib.sha256(str(root).encode()).hexdigest()[:12]
    folders = [cache / "memo_jax" / "images" / f"{root.name}-{address}"]
    if root.stat().st_mode & 0o222:
        folders.insert(0, root / ".memo_jax")
    for folder in folders:
        with contextlib.suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                return folder
    return None


def fits(num_images: int, size: int, available: int | None) -> bool:
    """Whether so many images of `size` pixels fit into `available` bytes, None if unknown.

    They are needed twice: as read, and sorted by the order of the classes.
    """
    return available is None or _needed(num_images, size) <= available


def check_memory(root: Path, num_images: int, size: int, available: int | None) -> None:
    """Raises UserError if so many images of `size` pixels do not fit into `available` bytes."""
    if not fits(num_images, size, available):
        most = int((available / (6 * num_images)) ** 0.5)
        raise UserError(
            f"{root}: {num_images:,} images of {size} x {size} pixels need "
            f"{_needed(num_images, size) / _GB:.1f} GB of memory while they are sorted, found "
            f"{available / _GB:.1f} GB free; use a larger machine, fewer classes, "
            f"--config.dataset.image_size={most} or smaller, or --config.dataset.streaming=auto "
            f"for those to train on"
        )


def _needed(num_images: int, size: int) -> int:
    return 2 * num_images * size * size * 3


def decoded(
    source: Source, files: Files, size: int, name: str, folder: Path | None
) -> tuple[np.ndarray, dict[str, str]]:
    """Images uint8 `[N, size, size, 3]`, and of each that cannot be read path and reason.

    Those are black. `folder` keeps the images under `name` and a digest of the files; what was
    kept of an earlier state is removed. Nothing is kept without a folder or where it is full.
    """
    kept = folder and folder / f"{name}-{size}-{files.digest()}"
    if kept and kept.is_dir():
        with contextlib.suppress(OSError, ValueError):  # damaged: made anew
            return _reopened(source, files, kept)
    for old in folder.glob(f"{name}-{size}-*") if folder else ():
        shutil.rmtree(old, ignore_errors=True)
    shape, rows = (len(files.paths), size, size, 3), range(len(files.paths))
    if not kept or shutil.disk_usage(folder).free < 1.1 * np.prod(shape):
        images = np.zeros(shape, np.uint8)
        return images, _decode_rows(source, files.paths, rows, images)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".unfinished-") as scratch:
        made = Path(scratch) / "made"
        made.mkdir()
        images = open_memmap(made / _IMAGES, "w+", np.uint8, shape)
        bad = _decode_rows(source, files.paths, rows, images)
        images.flush()
        (made / _BAD).write_text(json.dumps(bad))
        with contextlib.suppress(OSError):  # another process was faster, with the same images
            made.rename(kept)
    return images, bad


def _reopened(source: Source, files: Files, kept: Path) -> tuple[np.ndarray, dict[str, str]]:
    """What is kept; images that could not be read are tried again, as they may be mended."""
    bad = json.loads((kept / _BAD).read_text())
    if bad:
        images = open_memmap(kept / _IMAGES, "r+")
        bad = _decode_rows(source, files.paths, _rows_of(files, bad), images)
        images.flush()
        (kept / _BAD).write_text(json.dumps(bad))
    return open_memmap(kept / _IMAGES, "r"), bad


def checked(source: Source, files: Files, name: str, folder: Path | None) -> dict[str, str]:
    """Path and reason of each image that cannot be read; all are decoded once to find out.

    The answer is kept in `folder`; images that could not be read are tried again.
    """
    kept = folder and folder / f"{name}-checked-{files.digest()}.json"
    rows: Sequence[int] = range(len(files.paths))
    if kept and kept.is_file():
        with contextlib.suppress(OSError, ValueError):  # damaged: made anew
            rows = _rows_of(files, json.loads(kept.read_text()))

    def check(row: int) -> None:
        _decode.decode(source[row], _TO_CHECK)

    bad = _each(f"{source.root}: checking", files.paths, rows, check)
    if kept:
        for old in folder.glob(f"{name}-checked-*.json"):
            old.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # a full disk: checked again next time
            kept.write_text(json.dumps(bad))
    return bad


def _rows_of(files: Files, paths: Collection[str]) -> list[int]:
    return [row for row, path in enumerate(files.paths) if path in paths]


def _decode_rows(source: Source, paths: list[str], rows: Sequence[int], images) -> dict[str, str]:
    """Fills these rows of `images`; returns path and reason of those that stay as they are."""

    def decode(row: int) -> None:
        images[row] = _decode.decode(source[row], images.shape[1])

    return _each(f"{source.root}: decoding", paths, rows, decode)


def _each(
    title: str, paths: list[str], rows: Sequence[int], read: Callable[[int], None]
) -> dict[str, str]:
    """Reads each of these rows; returns path and reason of those for which it is a BadImage."""

    def read_some(some: Sequence[int]) -> dict[str, str]:
        bad = {}
        for row in some:
            try:
                read(row)
            except _decode.BadImage as error:
                bad[paths[row]] = str(error)
        return bad

    bad: dict[str, str] = {}
    # Pillow decodes and resizes outside of Python's lock, so threads do.
    pool = ThreadPoolExecutor(num_cores())
    try:
        parts = [rows[first : first + _CHUNK] for first in range(0, len(rows), _CHUNK)]
        chunks = [pool.submit(read_some, part) for part in parts]
        with _progress(title, len(rows)) as show:
            for number, chunk in enumerate(as_completed(chunks), 1):
                bad |= chunk.result()
                show(min(number * _CHUNK, len(rows)))
    finally:
        pool.shutdown(cancel_futures=True)
    return dict(sorted(bad.items()))


@contextlib.contextmanager
def _progress(title: str, total: int) -> Iterator[Callable[[int], None]]:
    """A line on a terminal that is kept up to date, elsewhere one a minute."""
    begun = said = time.monotonic()
    terminal = sys.stderr.isatty()

    def show(done: int) -> None:
        nonlocal said
        now = time.monotonic()
        if now - said < (0.2 if terminal else 60) and not (terminal and done == total):
            return
        said = now
        left = (now - begun) / done * (total - done)
        line = f"{title} {done:,} of {total:,} images, {left:.0f} s left"
        print(f"\r{line}" if terminal else line, end="" if terminal else "\n", file=sys.stderr)

    yield show
    if terminal:
        print(file=sys.stderr)
