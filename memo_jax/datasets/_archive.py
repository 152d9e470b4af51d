"""Downloads an archive, checks it and unpacks it, so that no half-done work is ever in use."""

import hashlib
import http.client
import logging
import os
import sys
import tarfile
import tempfile
import urllib.request
from pathlib import Path

from memo_jax.datasets._sources import Absent

_TIMEOUT_SECONDS = 10  # to connect and for each read: without a network a run fails soon
_CHUNK_BYTES = 1 << 20


def fetch(url: str, md5: str, into: Path, directory: str) -> Path:
    """Gives `into/directory`, made from the archive at `url` unless it is already there.

    An archive of the same name in `into` is used without a network if its checksum is right, and
    replaced by a good one if not; it stays there. All work is done in a hidden folder and renamed
    at the end, so an interrupted or a second process leaves and meets only finished things.

    Raises Absent, with the reason, if any step fails.
    """
    archive, target = into / url.rpartition("/")[2], into / directory
    if target.is_dir():
        return target
    spoilt = ""
    try:
        if archive.is_file() and (found := _md5(archive)) != md5:
            spoilt = f"{archive} is damaged (md5 {found} instead of {md5}); "
            logging.getLogger(__name__).warning("%sdownloading it again", spoilt)
        into.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".unfinished-", dir=into) as scratch:
            if spoilt or not archive.is_file():
                os.replace(_download(url, md5, Path(scratch)), archive)
            _unpack(archive, Path(scratch), target)
    except (OSError, http.client.HTTPException, tarfile.TarError) as error:
        raise Absent(f"{spoilt}{url} to {into} failed ({error})") from error
    return target


def _download(url: str, md5: str, scratch: Path) -> Path:
    file = scratch / "archive"
    with urllib.request.urlopen(url, timeout=_TIMEOUT_SECONDS) as answer, file.open("wb") as copy:
        total = int(answer.headers.get("Content-Length", 0))
        while chunk := answer.read(_CHUNK_BYTES):
            copy.write(chunk)
            _show_progress(url, copy.tell(), total)
    if (found := _md5(file)) != md5:
        raise OSError(f"got {file.stat().st_size} bytes with md5 {found} instead of {md5}")
    return file


def _unpack(archive: Path, scratch: Path, target: Path) -> None:
    with tarfile.open(archive) as tar:
        tar.extractall(scratch, filter="data")
    try:
        (scratch / target.name).rename(target)
    except OSError:
        if not target.is_dir():  # else another process was faster, with the same content
            raise


def _md5(file: Path) -> str:
    with file.open("rb") as stream:
        # md5 is what the authors publish; it guards against damage, not against an attacker.
        return hashlib.file_digest(stream, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def _show_progress(url: str, done: int, total: int) -> None:
    if sys.stderr.isatty():
        end = "\n" if done == total else ""
        print(f"\r{url}: {done >> 20} of {total >> 20} MiB", end=end, file=sys.stderr, flush=True)
