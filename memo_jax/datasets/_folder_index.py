"""What a folder of images holds: classes, files and their sizes.

Found by listing the folder once; kept in a file, as listing a million files anew takes minutes on
a network drive.
"""

import dataclasses
import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from memo_jax.datasets._decode import EXTENSIONS
from memo_jax.datasets._sources import Absent
from memo_jax.errors import UserError

_VERSION = 1  # of the file; another one is not read
_CHECKED_FILES = 100_000  # up to so many are looked at one by one when an index is used again
_ANNOTATIONS = "val_annotations.txt"  # Tiny-ImageNet: file name, class and a box in each line

Stamp = list[int]  # bytes and time of change (ns): a file with the same ones is the same


@dataclasses.dataclass(frozen=True)
class Files:
    """Images of one split: paths relative to the folder and labels 0..K-1, `[N]` each.

    stamps: of the files that hold them, `[N]` as well where each has its own.
    """

    paths: list[str]
    labels: list[int]
    stamps: list[Stamp]

    def digest(self) -> str:
        """Changes with any of the files."""
        return hashlib.sha256(json.dumps([self.paths, self.stamps]).encode()).hexdigest()[:16]


@dataclasses.dataclass(frozen=True)
class Index:
    """A folder of images.

    test is what lies in `val`, or in `test` where there is no `val`. directories: each with its
    time of change.
    """

    classes: list[str]
    train: Files
    test: Files
    directories: dict[str, int]

    def __len__(self) -> int:
        return len(self.train.paths) + len(self.test.paths)


def is_folder(root: Path) -> bool:
    """Whether the layout is that of a folder of images."""
    return (root / "train").is_dir() and bool(_test_directory(root))


def read(root: Path, wanted: tuple[str, ...] | None, kept: Path | None) -> Index:
    """The index of a folder as it is now; all classes, or only the `wanted` ones.

    kept: the file it is kept in, or None. It is made anew if a directory has changed and, where
    there are at most 100,000 images, if one of them has; more are not looked at one by one, so
    after overwriting one in place remove that file.

    Raises Absent where there is no such folder, UserError for one that does not fit.
    """
    if not is_folder(root):
        raise Absent(f"no train/ and val/ in {root}")
    index = _load(kept) if kept else None
    if index is None or not _fresh(root, index) or (wanted and index.classes != list(wanted)):
        index = _listed(root, wanted)
        if kept:
            write(kept, {"version": _VERSION, **vars(index)})
    return index


def write(kept: Path, content: dict) -> None:
    """Replaces a file of JSON at once, so that no process meets half of it."""
    descriptor, temporary = tempfile.mkstemp(dir=kept.parent, prefix=".unfinished-")
    with open(descriptor, "w") as file:
        json.dump(content, file, default=vars)
    os.replace(temporary, kept)


def _load(kept: Path) -> Index | None:
    """What is kept, or None if that is nothing, damaged or of another version."""
    try:
        content = json.loads(kept.read_text())
        if content.pop("version") != _VERSION:
            return None
        train, test = (Files(**content.pop(split)) for split in ("train", "test"))
        return Index(train=train, test=test, **content)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _fresh(root: Path, index: Index) -> bool:
    try:
        for directory, time in index.directories.items():
            if (root / directory).stat().st_mtime_ns != time:
                return False
        if len(index) > _CHECKED_FILES:
            return True
        return all(
            stamp_of((root / path).stat()) == stamp
            for files in (index.train, index.test)
            for path, stamp in zip(files.paths, files.stamps)
        )
    except OSError:
        return False


def stamp_of(status: os.stat_result) -> Stamp:
    """The stamp of a file."""
    return [status.st_size, status.st_mtime_ns]


def _test_directory(root: Path) -> str | None:
    return next((name for name in ("val", "test") if (root / name).is_dir()), None)


def _listed(root: Path, wanted: tuple[str, ...] | None) -> Index:
    """The index made anew."""
    directories: dict[str, int] = {}
    test = _test_directory(root)
    found = {"train": _by_class(root, "train", wanted, directories)}
    if (root / test / _ANNOTATIONS).is_file():
        found[test] = _annotated(root, test, directories)
    else:
        found[test] = _by_class(root, test, wanted, directories)
    classes = list(wanted) if wanted else sorted({*found["train"], *found[test]})
    if len(classes) < 2:
        raise UserError(
            f"{root}: expected images as train/CLASS/FILE and {test}/CLASS/FILE of at least two "
            f"classes, found {len(classes)}; say where they are with --config.dataset.path=DIR"
        )
    for split, members in found.items():
        empty = [name for name in classes if not members.get(name)]
        if empty:
            raise UserError(
                f"{root / split}: expected images ({', '.join(EXTENSIONS)}) of all {len(classes)} "
                f"classes, found none of {len(empty)} classes such as {empty[0]!r}; add them or "
                "remove these classes from the other folder"
            )
    files = [_files(members, classes) for members in found.values()]
    return Index(classes, *files, directories)


Entry = tuple[str, Stamp]  # path relative to the root


def _by_class(
    root: Path, split: str, wanted: tuple[str, ...] | None, directories: dict[str, int]
) -> dict[str, list[Entry]]:
    """The images of each class in `root/split/CLASS`, at any depth."""
    directories[split] = (root / split).stat().st_mtime_ns
    names = [e.name for e in os.scandir(root / split) if e.is_dir() and e.name[0] != "."]
    return {
        name: list(_images(root, f"{split}/{name}", directories))
        for name in names
        if wanted is None or name in wanted
    }


def _annotated(root: Path, split: str, directories: dict[str, int]) -> dict[str, list[Entry]]:
    """The images of `root/split/images`, whose classes are in a file, as Tiny-ImageNet has it."""
    file = root / split / _ANNOTATIONS
    try:
        class_of = dict(line.split("\t")[:2] for line in file.read_text().splitlines())
    except ValueError as error:
        raise UserError(
            f"{file}: expected lines of file name, tab and class, found others; replace it"
        ) from error
    found: dict[str, list[Entry]] = {}
    directories[split] = (root / split).stat().st_mtime_ns
    for entry in _images(root, f"{split}/images", directories):
        found.setdefault(class_of.get(Path(entry[0]).name, ""), []).append(entry)
    found.pop("", None)
    return found


def _images(root: Path, directory: str, directories: dict[str, int]) -> Iterator[Entry]:
    """The images in a directory and below it, with their stamps, in no particular order."""
    directories[directory] = (root / directory).stat().st_mtime_ns
    with os.scandir(root / directory) as entries:
        for entry in entries:
            path = f"{directory}/{entry.name}"
            if entry.name.startswith("."):
                continue
            if entry.is_dir():
                yield from _images(root, path, directories)
            elif entry.name.lower().endswith(EXTENSIONS):
                yield path, stamp_of(entry.stat())


def _files(members: dict[str, list[Entry]], classes: list[str]) -> Files:
    """Sorted by class, then by path."""
    rows = [(p, label, s) for label, name in enumerate(classes) for p, s in sorted(members[name])]
    return Files(*map(list, zip(*rows)))
