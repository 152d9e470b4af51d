"""CIFAR as prepared by tensorflow-datasets, in both its formats."""

import dataclasses
import io
import json
import shutil
import struct
import sys
from pathlib import Path

import dataset_files
import numpy as np
import pytest
from dataset_files import CLASSES, TINY100, assert_reads

from memo_jax import datasets
from memo_jax.datasets import _cifar
from memo_jax.errors import UserError


@pytest.fixture(autouse=True)
def no_prepared_data(tmp_path, monkeypatch):
    return dataset_files.hide_prepared(monkeypatch, tmp_path)


@pytest.fixture
def prepared(no_prepared_data):
    """cifar100 of four classes, really prepared in the array_record format."""
    tfds = pytest.importorskip("tensorflow_datasets")
    image = pytest.importorskip("PIL.Image")
    rng = np.random.default_rng(0)
    written = {
        name: datasets.Split(rng.integers(0, 256, (n, 32, 32, 3), np.uint8), np.arange(n) % CLASSES)
        for name, n in (("train", 13), ("test", 8))
    }

    class Builder(tfds.core.GeneratorBasedBuilder, skip_registration=True):
        name = "cifar100"
        VERSION = tfds.core.Version("3.0.2")

        def _info(self):
            features = {
                "id": tfds.features.Text(),
                "image": tfds.features.Image(shape=(32, 32, 3)),
                "label": tfds.features.ClassLabel(names=[f"class {n}" for n in range(CLASSES)]),
            }
            return tfds.core.DatasetInfo(
                builder=self, features=tfds.features.FeaturesDict(features)
            )

        def _split_generators(self, dl_manager):
            return {name: self._generate_examples(name) for name in written}

        def _generate_examples(self, name):
            split = written[name]
            for number, label in enumerate(split.labels):
                png = io.BytesIO()
                image.fromarray(split.images[number]).save(png, "PNG")
                key = f"{name}_{number:05d}"
                yield number, {"id": key, "image": png.getvalue(), "label": int(label)}

    Builder(data_dir=no_prepared_data, file_format="array_record").download_and_prepare()
    return no_prepared_data / "cifar100" / "3.0.2", written


PREPARED100 = dataclasses.replace(TINY100, sizes=(13, 8))


def as_tfrecord(directory: Path) -> None:
    """Turns what is prepared into the usual format; its checksums are zero, as none are read."""
    from array_record.python.array_record_module import ArrayRecordReader

    for file in directory.glob("*.array_record*"):
        with open(str(file).replace("array_", "tf"), "wb") as out:
            for record in ArrayRecordReader(str(file)).read_all():
                out.write(struct.pack("<Q4x", len(record)) + record + bytes(4))
        file.unlink()
    info = json.loads((directory / "dataset_info.json").read_text())
    (directory / "dataset_info.json").write_text(json.dumps(info | {"fileFormat": "tfrecord"}))


@pytest.mark.parametrize("convert", [lambda d: None, as_tfrecord], ids=["array_record", "tfrecord"])
def test_prepared_images_come_in_the_order_of_the_official_files(convert, prepared, tmp_path):
    directory, written = prepared
    convert(directory)
    assert_reads(_cifar.load(PREPARED100, str(tmp_path), "auto"), written)
    assert_reads(_cifar.load(PREPARED100, str(tmp_path), "tfds"), written)


def test_the_newest_prepared_version_is_read(prepared, tmp_path):
    directory, written = prepared
    shutil.copytree(directory, directory.with_name("3.0.10"))
    (directory / "dataset_info.json").write_text("{}")
    assert_reads(_cifar.load(PREPARED100, str(tmp_path), "tfds"), written)


@pytest.mark.parametrize("kept", [-10, 5, 0])
@pytest.mark.parametrize("convert", [lambda d: None, as_tfrecord], ids=["array_record", "tfrecord"])
def test_damaged_prepared_files_are_told(convert, kept, prepared, tmp_path):
    directory, _ = prepared
    convert(directory)
    file = next(directory.glob("cifar100-train*"))
    file.write_bytes(file.read_bytes()[:kept])
    with pytest.raises(UserError, match="cannot be read") as error:
        _cifar.load(PREPARED100, str(tmp_path), "auto")
    assert str(error.value).startswith(f"{directory}: expected cifar100 as prepared by")


def test_a_prepared_file_that_ends_early_is_told(prepared, tmp_path):
    directory, _ = prepared
    as_tfrecord(directory)
    file = next(directory.glob("cifar100-train*"))
    length = struct.unpack("<Q", file.read_bytes()[:8])[0]
    file.write_bytes(file.read_bytes()[: length + 16])
    with pytest.raises(UserError, match="1 train images instead of 13"):
        _cifar.load(PREPARED100, str(tmp_path), "auto")


def test_without_tensorflow_datasets(prepared, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
    with pytest.raises(UserError, match=r"3\.0\.2 needs tensorflow-datasets .*refused"):
        _cifar.load(PREPARED100, str(tmp_path), "auto")
    shutil.rmtree(prepared[0])
    with pytest.raises(UserError, match="nothing prepared"):
        _cifar.load(PREPARED100, str(tmp_path), "tfds")
