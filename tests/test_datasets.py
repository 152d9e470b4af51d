"""Datasets: what all of them promise, where CIFAR is looked for, and what damage is told."""

import contextlib
import dataclasses
import functools
import hashlib
import http.server
import io
import json
import pickle
import shutil
import struct
import sys
import tarfile
import threading
from pathlib import Path

import numpy as np
import pytest

from memo_jax import datasets
from memo_jax.datasets import _cifar, cifar10, cifar100, digits
from memo_jax.errors import UserError

NOWHERE = "http://127.0.0.1:9"  # the discard port: connections are refused at once
CLASSES = 4
TINY = [
    dataclasses.replace(official, num_classes=CLASSES, sizes=sizes, url=f"{NOWHERE}/tiny.tar.gz")
    for official, sizes in ((cifar10.SPEC, (20, 4)), (cifar100.SPEC, (4, 4)))
]
TINY100 = TINY[1]


@pytest.fixture(autouse=True)
def no_prepared_data(tmp_path, monkeypatch):
    """Whatever the machine has prepared with tensorflow-datasets stays out of these tests."""
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "tfds"))
    return tmp_path / "tfds"


# ---- official files, made by hand


def python2_pickle(value) -> bytes:
    """Protocol 2 as Python 2 with numpy 1 wrote it (the official files): text is bytes."""

    def opcodes(value) -> bytes:
        if isinstance(value, str | bytes):
            text = value.encode() if isinstance(value, str) else value
            return b"T" + struct.pack("<i", len(text)) + text
        if isinstance(value, int):
            return b"J" + struct.pack("<i", value)
        if isinstance(value, list):
            return b"(" + b"".join(map(opcodes, value)) + b"l"
        if isinstance(value, dict):
            return b"(" + b"".join(opcodes(part) for item in value.items() for part in item) + b"d"
        shape = b"(" + b"".join(map(opcodes, value.shape)) + b"t"
        kind = b"cnumpy\ndtype\n(" + opcodes(value.dtype.str[1:]) + opcodes(0) + opcodes(1) + b"tR("
        kind += opcodes(3) + opcodes("|") + b"NNN" + opcodes(-1) + opcodes(-1) + opcodes(0) + b"tb"
        empty = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00t" + opcodes("b")
        data = opcodes(value.tobytes())
        return empty + b"tR(" + opcodes(1) + shape + kind + b"I00\n" + data + b"tb"

    return b"\x80\x02" + opcodes(value) + b"."


def python3_pickle(value) -> bytes:
    return pickle.dumps(value)


def newest_pickle(value) -> bytes:
    return pickle.dumps(value, protocol=5)


def bytes_keys_pickle(value) -> bytes:
    return pickle.dumps({key.encode(): value[key] for key in value}, protocol=2)


def write_official(spec, root: Path, dumps=python2_pickle) -> dict[str, datasets.Split]:
    """Writes every file with one image a class; returns what must be read, as plain arrays."""
    directory = root / spec.directory
    directory.mkdir(parents=True)
    rng = np.random.default_rng(0)

    def write(files):
        images, labels = [], []
        for file in files:
            some = rng.integers(0, 256, (spec.num_classes, 32, 32, 3), np.uint8)
            order = rng.permutation(spec.num_classes)
            rows = [[p for c in range(3) for row in image for p in row[:, c]] for image in some]
            table = {"data": np.array(rows, np.uint8), spec.labels_key: order.tolist()}
            (directory / file).write_bytes(dumps(table))
            images.append(some)
            labels.append(order)
        return datasets.Split(np.concatenate(images), np.concatenate(labels))

    names = [f"class {number}" for number in range(spec.num_classes)]
    (directory / spec.meta_file).write_bytes(dumps({spec.names_key: names}))
    return {"train": write(spec.train_files), "test": write(spec.test_files)}


def assert_reads(dataset, written):
    for name, split in written.items():
        read = getattr(dataset, name)
        np.testing.assert_array_equal(read.images, split.images)
        np.testing.assert_array_equal(read.labels, split.labels)
    assert dataset.class_names == tuple(f"class {number}" for number in range(CLASSES))


# ---- the contract

# Classes and image shape of every dataset, and what puts a sample of it into a directory.
SAMPLES = {
    "cifar10": (10, (32, 32, 3), functools.partial(write_official, cifar10.SPEC)),
    "cifar100": (100, (32, 32, 3), functools.partial(write_official, cifar100.SPEC)),
    "digits": (10, (8, 8, 1), lambda root: None),
}


def test_every_dataset_has_a_sample_for_the_contract():
    assert sorted(SAMPLES) == datasets.names()


@pytest.mark.parametrize("name", datasets.names())
def test_contract(name, tmp_path):
    num_classes, image_shape, write = SAMPLES[name]
    write(tmp_path)
    dataset = datasets.load(name, str(tmp_path), "auto")
    assert dataset.name == name
    assert (dataset.num_classes, dataset.image_shape) == (num_classes, image_shape)
    for split in (dataset.train, dataset.test):
        assert split.images.dtype == np.uint8 and split.labels.dtype == np.int32
        assert split.images.shape == (len(split), *dataset.image_shape)
        assert set(split.labels.tolist()) == set(range(dataset.num_classes))
    seen = [{image.tobytes() for image in s.images} for s in (dataset.train, dataset.test)]
    assert not seen[0] & seen[1]
    assert len(dataset.mean) == len(dataset.std) == image_shape[-1]
    assert len(set(dataset.class_names)) == dataset.num_classes


def test_unknown_dataset():
    with pytest.raises(UserError, match="did you mean 'cifar100'"):
        datasets.load("cifar_100", "data", "auto")


def test_in_order_renumbers_the_classes_and_keeps_the_order_within_each():
    dataset = datasets.load("digits", "", "auto")
    order = np.random.default_rng(1).permutation(10)
    renumbered = dataset.in_order(order)
    for new, old in enumerate(order):
        assert renumbered.class_names[new] == dataset.class_names[old]
        for name in ("train", "test"):
            before, after = getattr(dataset, name), getattr(renumbered, name)
            mine = after.of(new, new + 1).images
            np.testing.assert_array_equal(mine, before.images[before.labels == old])
    assert (np.diff(renumbered.train.labels) >= 0).all()
    assert renumbered.train.labels.dtype == np.int32


# ---- digits


def test_digits_split_scale_and_statistics():
    from sklearn.datasets import load_digits

    source, dataset = load_digits(), digits.load("", "auto")
    wanted, count = {"train": [], "test": []}, [0] * 10
    for image, label in zip(source.images, source.target, strict=True):
        count[label] += 1
        wanted["test" if count[label] % 5 == 0 else "train"].append((image, label))
    for name, pairs in wanted.items():
        split = getattr(dataset, name)
        assert split.labels.tolist() == [label for _, label in pairs]
        exact = np.array([image for image, _ in pairs])[..., None] / 16
        assert np.abs(split.images / 255 - exact).max() <= 0.5 / 255
    pixels = dataset.train.images / 255
    assert (round(pixels.mean(), 4), round(pixels.std(), 4)) == (*dataset.mean, *dataset.std)


def test_digits_have_one_source():
    with pytest.raises(UserError, match="know only 'auto', found 'local'"):
        digits.load("data", "local")


# ---- official CIFAR files


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "dumps", [python2_pickle, bytes_keys_pickle, python3_pickle, newest_pickle]
)
@pytest.mark.parametrize("spec", TINY, ids=lambda spec: spec.name)
def test_official_files(spec, dumps, tmp_path):
    written = write_official(spec, tmp_path, dumps)
    assert_reads(_cifar.load(spec, str(tmp_path), "auto"), written)
    assert_reads(_cifar.load(spec, str(tmp_path / spec.directory), "local"), written)
    (tmp_path / spec.directory).rename(tmp_path / "of any name")
    assert_reads(_cifar.load(spec, str(tmp_path / "of any name"), "auto"), written)


def test_names_within_the_official_archives():
    assert cifar10.SPEC.directory == "cifar-10-batches-py"
    assert cifar10.SPEC.train_files == (
        "data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5",
    )  # fmt: skip
    assert (cifar10.SPEC.test_files, cifar10.SPEC.meta_file) == (("test_batch",), "batches.meta")
    assert (cifar10.SPEC.labels_key, cifar10.SPEC.names_key) == ("labels", "label_names")
    assert cifar100.SPEC.directory == "cifar-100-python"
    assert cifar100.SPEC.train_files + cifar100.SPEC.test_files == ("train", "test")
    assert cifar100.SPEC.meta_file == "meta"
    assert (cifar100.SPEC.labels_key, cifar100.SPEC.names_key) == (
        "fine_labels",
        "fine_label_names",
    )


def test_a_part_of_the_data_is_read_with_a_warning(tmp_path, caplog):
    write_official(TINY100, tmp_path)
    _cifar.load(TINY100, str(tmp_path), "local")
    assert not caplog.records
    _cifar.load(dataclasses.replace(TINY100, sizes=(5, 4)), str(tmp_path), "local")
    assert [r.getMessage().split(": ")[1] for r in caplog.records] == [
        "4 train images instead of the official 5; results are not comparable"
    ]


def damage_table(file="train", **entries):
    def damage(directory):
        table = {"data": np.zeros((4, 3072), np.uint8), "fine_labels": [0, 1, 2, 3], **entries}
        kept = {key: value for key, value in table.items() if value is not None}
        (directory / file).write_bytes(python2_pickle(kept))

    return damage


def truncate(directory):
    (directory / "train").write_bytes((directory / "train").read_bytes()[:5000])


DAMAGES = {
    "missing file": (lambda d: (d / "test").unlink(), "test: .*no such file"),
    "missing names": (lambda d: (d / "meta").unlink(), "meta: .*no such file"),
    "truncated": (truncate, "train: expected a pickled dictionary, found .*cannot be read"),
    "empty": (lambda d: (d / "train").write_bytes(b""), "train: .*cannot be read"),
    "a list": (lambda d: (d / "train").write_bytes(python2_pickle([1])), "train: .*pickled list"),
    "no labels": (damage_table(fine_labels=None), r"entry 'fine_labels', found only \['data'\]"),
    "no pixels": (damage_table(data=None), r"entry 'data', found only \['fine_labels'\]"),
    "too few labels": (damage_table(fine_labels=[0, 1, 2]), r"4 whole numbers .*int64 \[3\]"),
    "text labels": (damage_table(fine_labels=list("abcd")), "4 whole numbers"),
    "ragged labels": (damage_table(fine_labels=[[0], [1, 2]]), "found a list of 2"),
    "label too large": (damage_table(fine_labels=[0, 1, 2, 4]), r"labels in 0\.\.3, .*label 4"),
    "label negative": (damage_table(fine_labels=[0, 1, 2, -1]), r"labels in 0\.\.3, .*label -1"),
    "class without images": (
        damage_table("test", fine_labels=[0, 1, 1, 3]),
        "test images of all 4",
    ),
    "wrong shape": (damage_table(data=np.zeros((4, 3071), np.uint8)), r"\[N, 3072\].*\[4, 3071\]"),
    "wrong type": (damage_table(data=np.zeros((4, 3072), np.float32)), "uint8, found float32"),
    "names missing": (damage_table("meta", fine_label_names=["a"]), "4 class names, found .* of 1"),
}


@pytest.mark.parametrize(("damage", "told"), DAMAGES.values(), ids=DAMAGES)
def test_damage_is_told_in_a_line_with_file_and_remedy(damage, told, tmp_path):
    write_official(TINY100, tmp_path)
    damage(tmp_path / TINY100.directory)
    with pytest.raises(UserError, match=told) as error:
        _cifar.load(TINY100, str(tmp_path), "auto")
    line = str(error.value)
    assert line.startswith(str(tmp_path / TINY100.directory)) and "\n" not in line
    assert f"replace {tmp_path / TINY100.directory}, or" in line
    assert "--config.dataset.source=download" in line


def test_the_directory_itself_is_known_by_its_name_too(tmp_path):
    write_official(TINY100, tmp_path)
    (tmp_path / TINY100.directory / "meta").unlink()
    with pytest.raises(UserError, match="meta: expected a pickled dictionary, found no such file"):
        _cifar.load(TINY100, str(tmp_path / TINY100.directory), "auto")


def test_data_files_cannot_run_code(tmp_path):
    write_official(TINY100, tmp_path)
    code = f"cos\nmkdir\n(V{tmp_path / 'harm'}\ntR.".encode()
    (tmp_path / TINY100.directory / "train").write_bytes(code)
    with pytest.raises(UserError, match=r"asks for os\.mkdir"):
        _cifar.load(TINY100, str(tmp_path), "local")
    assert not (tmp_path / "harm").exists()
    pickle.loads(code)  # the file is what it claims to be
    assert (tmp_path / "harm").exists()


# ---- sources


def test_nowhere_says_where_it_looked_why_the_download_failed_and_the_remedy(tmp_path):
    with pytest.raises(UserError) as error:
        _cifar.load(TINY100, str(tmp_path), "auto")
    line = str(error.value)
    assert "\n" not in line
    for part in (
        f"local: no directory {tmp_path}/cifar-100-python",
        f"tfds: nothing prepared in {tmp_path}/tfds/cifar100",
        f"download: {NOWHERE}/tiny.tar.gz",
        "Connection refused",
        f"Put the directory cifar-100-python of {TINY100.url} into {tmp_path}",
        "--config.dataset.path=DIR",
    ):
        assert part in line


@pytest.mark.parametrize("source", ["local", "tfds", "download"])
def test_a_named_source_is_the_only_one(source, tmp_path):
    with pytest.raises(UserError) as error:
        _cifar.load(TINY100, str(tmp_path), source)
    assert [s for s in ("local", "tfds", "download") if f"{s}: " in str(error.value)] == [source]


def test_unknown_source():
    with pytest.raises(UserError, match=r"'locl'; .* 'local'\? .*auto, local, tfds, download"):
        _cifar.load(TINY100, "data", "locl")


# ---- download, from a real server


@contextlib.contextmanager
def serving(directory: Path, cut: int = 0):
    """A web server for `directory`; with `cut`, it hangs up that many bytes before the end."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        def copyfile(self, source, outputfile):
            data = source.read()
            outputfile.write(data[: len(data) - cut])

        def log_message(self, *args):
            pass

    handler = functools.partial(Handler, directory=directory)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def archive(tmp_path):
    """An official archive in a folder of its own: the file, its content, the spec but its URL."""
    served = tmp_path / "served"
    written = write_official(TINY100, served)
    with tarfile.open(served / "tiny.tar.gz", "w:gz") as tar:
        tar.add(served / TINY100.directory, TINY100.directory)
    md5 = hashlib.md5((served / "tiny.tar.gz").read_bytes()).hexdigest()
    return served / "tiny.tar.gz", written, dataclasses.replace(TINY100, md5=md5)


def at(spec, url):
    return dataclasses.replace(spec, url=f"{url}/tiny.tar.gz")


def test_download_is_kept_and_needs_no_network_later(archive, tmp_path):
    file, written, spec = archive
    data = tmp_path / "data"
    with serving(file.parent) as url:
        assert_reads(_cifar.load(at(spec, url), str(data), "auto"), written)
    assert sorted(p.name for p in data.iterdir()) == ["cifar-100-python", "tiny.tar.gz"]
    assert_reads(_cifar.load(spec, str(data), "local"), written)
    assert_reads(_cifar.load(spec, str(data), "download"), written)
    shutil.rmtree(data / spec.directory)
    assert_reads(_cifar.load(spec, str(data), "auto"), written)
    (data / "tiny.tar.gz").unlink()
    assert_reads(_cifar.load(spec, str(data), "download"), written)


def test_a_damaged_archive_is_replaced_or_told(archive, tmp_path):
    file, written, spec = archive
    data = tmp_path / "data"
    data.mkdir()
    (data / "tiny.tar.gz").write_bytes(file.read_bytes()[:-1])
    with pytest.raises(UserError, match=r"data/tiny.tar.gz is damaged \(md5 .*refused"):
        _cifar.load(spec, str(data), "download")
    assert (data / "tiny.tar.gz").read_bytes() == file.read_bytes()[:-1]
    with serving(file.parent) as url:
        assert_reads(_cifar.load(at(spec, url), str(data), "download"), written)
    assert (data / "tiny.tar.gz").read_bytes() == file.read_bytes()


@pytest.mark.parametrize(
    ("url_end", "cut", "md5", "told"),
    [
        ("", 0, "0" * 32, "md5 .* instead of 00000000"),
        ("", 100, None, "md5 .* instead of|IncompleteRead|retrieval incomplete"),
        ("/nothing", 0, None, "HTTP Error 404"),
    ],
    ids=["other content", "hangs up", "not found"],
)
def test_a_failed_download_leaves_nothing(url_end, cut, md5, told, archive, tmp_path):
    file, _, spec = archive
    data = tmp_path / "data"
    spec = dataclasses.replace(spec, md5=md5 or spec.md5)
    with serving(file.parent, cut) as url, pytest.raises(UserError, match=told):
        _cifar.load(at(spec, url + url_end), str(data), "auto")
    assert list(data.iterdir()) == []


def test_an_archive_cannot_write_elsewhere_and_half_of_it_is_not_kept(archive, tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    with tarfile.open(data / "tiny.tar.gz", "w:gz") as tar:
        tar.add(archive[0].with_name(TINY100.directory), TINY100.directory)
        tar.addfile(tarfile.TarInfo("../../harm"), io.BytesIO())
    md5 = hashlib.md5((data / "tiny.tar.gz").read_bytes()).hexdigest()
    with pytest.raises(UserError, match="outside the destination"):
        _cifar.load(dataclasses.replace(TINY100, md5=md5), str(data), "download")
    assert not list(tmp_path.rglob("harm"))
    assert [p.name for p in data.iterdir()] == ["tiny.tar.gz"]


# ---- prepared by tensorflow-datasets


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
