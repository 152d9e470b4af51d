"""ImageNet as prepared by tensorflow-datasets: the images of the folder it was made from."""

import json
from pathlib import Path

import numpy as np
import pytest
from dataset_files import hide_prepared
from image_files import write_image

from memo_jax.datasets import EncodedImages, Reading, _folder
from memo_jax.errors import UserError

CLASSES = ("n01", "n02", "n03")
SPEC = _folder.Folder("tiny", image_size=16, prepared="tiny2012")


def write(root: Path) -> None:
    """A folder of the layout of ImageNet: four training images a class and one to test."""
    for label, name in enumerate(CLASSES):
        for number in range(4):
            write_image(root / "train" / name / f"{name}_{number}.JPEG", 10 * label + number, 40)
        write_image(root / "val" / name / f"val_{label}.JPEG", 100 + label, 40)


def prepare(root: Path, data_dir: Path, file_format: str = "array_record") -> None:
    """Prepares what is in the folder, in another order, with the features of imagenet2012."""
    import tensorflow_datasets as tfds

    class Builder(tfds.core.GeneratorBasedBuilder, skip_registration=True):
        name = "tiny2012"
        VERSION = tfds.core.Version("5.1.0")

        def _info(self):
            features = {
                "image": tfds.features.Image(encoding_format="jpeg"),
                "label": tfds.features.ClassLabel(names=CLASSES[::-1]),
                "file_name": tfds.features.Text(),
            }
            return tfds.core.DatasetInfo(
                builder=self, features=tfds.features.FeaturesDict(features)
            )

        def _split_generators(self, dl_manager):
            splits = {"train": "train", "validation": "val"}
            return {name: self._generate_examples(split) for name, split in splits.items()}

        def _generate_examples(self, split):
            for file in sorted((root / split).rglob("*.JPEG"), reverse=True):
                label, content = file.parent.name, file.read_bytes()
                yield file.name, {"image": content, "label": label, "file_name": file.name}

    Builder(data_dir=data_dir, file_format=file_format).download_and_prepare()


@pytest.fixture
def places(tmp_path, monkeypatch) -> tuple[Path, Path]:
    """The folder, and where it is prepared."""
    pytest.importorskip("tensorflow_datasets")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    write(tmp_path / "folder")
    data_dir = hide_prepared(monkeypatch, tmp_path)
    prepare(tmp_path / "folder", data_dir)
    return tmp_path / "folder", data_dir / "tiny2012" / "5.1.0"


@pytest.mark.parametrize("streaming", ["always", "never"])
def test_records_are_the_images_of_the_folder_in_its_order(places, streaming):
    folder, prepared = places
    reading = Reading(streaming=streaming)
    expected = _folder.load(SPEC, str(folder), "local", Reading())
    for _ in range(2):  # listed anew, then as it was kept
        read = _folder.load(SPEC, "nowhere", "auto", reading)
        assert read.class_names == expected.class_names == CLASSES
        for ours, theirs in ((read.train, expected.train), (read.test, expected.test)):
            np.testing.assert_array_equal(ours.labels, theirs.labels)
            np.testing.assert_array_equal(ours.images[:], theirs.images)
        assert isinstance(read.train.images, EncodedImages) == (streaming == "always")
    assert len(list(prepared.glob(".memo_jax/*.json"))) >= 2


def test_some_classes_of_a_larger_set(places):
    spec = _folder.Folder("some", image_size=16, classes=CLASSES[1:], prepared="tiny2012")
    train = _folder.load(spec, "nowhere", "tfds", Reading()).train
    assert train.labels.tolist() == [0] * 4 + [1] * 4
    spec = _folder.Folder("some", image_size=16, classes=("n01", "n09"), prepared="tiny2012")
    with pytest.raises(UserError, match=r"train images of all 2 classes, found none of 1.*n09"):
        _folder.load(spec, "nowhere", "tfds", Reading())


def test_what_cannot_be_read_is_told(places):
    _, prepared = places
    info = prepared / "dataset_info.json"
    whole = info.read_text()
    info.write_text(json.dumps(json.loads(whole) | {"fileFormat": "tfrecord"}))
    with pytest.raises(UserError, match=r"expected array_record files, found tfrecord"):
        _folder.load(SPEC, "nowhere", "tfds", Reading())
    info.write_text(whole)
    file = next(prepared.glob("*train.array_record*"))
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(UserError, match=r"5\.1\.0: expected tiny2012 as prepared by"):
        _folder.load(SPEC, "nowhere", "tfds", Reading())
