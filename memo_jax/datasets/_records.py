"""ImageNet in array_record files, as tensorflow-datasets prepares it; TensorFlow is not needed."""

import contextlib
import dataclasses
import functools
import json
from pathlib import Path

import numpy as np

from memo_jax.datasets import _folder_images, _folder_index, _tfds
from memo_jax.datasets._folder_index import Files, Index
from memo_jax.errors import UserError

SPLITS = ("train", "validation")


@dataclasses.dataclass(frozen=True)
class Records:
    """A Source: images `names` in a prepared split, at the places `places` int `[N]`."""

    root: str
    split: str
    places: np.ndarray
    names: list[str]

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, row: int) -> bytes:
        return self._content.example(int(self.places[row]))["image"]

    def name(self, row: int) -> str:
        return self.names[row]

    def only(self, rows: np.ndarray) -> "Records":
        return Records(self.root, self.split, self.places[rows], [self.names[row] for row in rows])

    @functools.cached_property
    def _content(self) -> "_Content":
        return _Content(self.root, self.split)


class _Content:
    """The examples of a split, decoded but for their images; each process opens the files anew."""

    def __init__(self, root: str, split: str):
        import tensorflow_datasets as tfds
        from array_record.python.array_record_data_source import ArrayRecordDataSource
        from tensorflow_datasets.core.example_parser import ExampleParserNp

        features = tfds.features.FeatureConnector.from_config(root)
        self.class_names = features["label"].names
        self._parser = ExampleParserNp(features.get_serialized_info())
        self._records = ArrayRecordDataSource(_files(root, split))

    def __len__(self) -> int:
        return len(self._records)

    def example(self, place: int) -> dict:
        """`image` (bytes), `label` and `file_name` of one record."""
        return self._parser.parse_example(self._records[place])


def _files(root: str, split: str) -> list[str]:
    return sorted(map(str, Path(root).glob(f"*-{split}.array_record*")))


def read(name: str, wanted: tuple[str, ...] | None) -> tuple[Path, Index, list[Records]]:
    """Where a dataset was found, what it holds, and its training and test images.

    Classes and images come in the order in which `_folder_index.read` has those of a folder. All
    records are read for that once; what they hold is kept.
    Raises Absent if nothing is prepared, UserError for another format and for files that cannot be
    read.
    """
    root = _tfds.newest(name)
    kind = json.loads((root / "dataset_info.json").read_text()).get("fileFormat", "tfrecord")
    if kind != "array_record":
        raise UserError(
            f"{root}: expected array_record files, found {kind}, of which single images cannot be "
            "read; prepare them with file_format='array_record'"
        )
    try:
        listings = [_listing(root, split) for split in SPLITS]
    except Exception as error:  # whatever tensorflow-datasets and its readers raise
        raise _tfds.unreadable(root, name, error) from error
    classes = list(wanted) if wanted else sorted({*listings[0]["classes"]})
    chosen = [_chosen(root, split, listing, classes) for split, listing in zip(SPLITS, listings)]
    files, records = zip(*chosen)
    return root, Index(classes, *files, directories={}), list(records)


def _listing(root: Path, split: str) -> dict[str, list]:
    """`classes` and `names` of the images of a split, record by record, and its files' `stamps`."""
    stamps = [_folder_index.stamp_of(Path(file).stat()) for file in _files(str(root), split)]
    folder = _folder_images.cache_folder(root)
    kept = folder and folder / f"{split}.json"
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):  # none, or damaged
        listing = json.loads(kept.read_text())
        if listing["stamps"] == stamps:
            return listing
    content = _Content(str(root), split)
    listing = {"stamps": stamps, "classes": [], "names": []}
    for place in range(len(content)):  # one at a time: the images together may be 140 GB
        example = content.example(place)
        listing["classes"].append(content.class_names[example["label"]])
        listing["names"].append(example["file_name"].decode())
    if kept:
        _folder_index.write(kept, listing)
    return listing


def _chosen(
    root: Path, split: str, listing: dict[str, list], classes: list[str]
) -> tuple[Files, Records]:
    """The images of these classes, sorted by class, then by name."""
    missing = sorted({*classes} - {*listing["classes"]})
    if missing:
        raise UserError(
            f"{root}: expected {split} images of all {len(classes)} classes, found none of "
            f"{len(missing)} such as {missing[0]!r}; prepare the whole dataset"
        )
    label = {name: number for number, name in enumerate(classes)}
    rows = sorted(
        (label[name], file, place)
        for place, (name, file) in enumerate(zip(listing["classes"], listing["names"]))
        if name in label
    )
    paths = [f"{split}/{classes[number]}/{file}" for number, file, _ in rows]
    places = np.array([place for *_, place in rows], np.int64)
    files = Files(paths, [number for number, *_ in rows], listing["stamps"])
    return files, Records(str(root), split, places, paths)
