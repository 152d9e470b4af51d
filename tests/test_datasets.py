"""Datasets: what all of them promise, official CIFAR files, and what damage is told."""

import dataclasses
import functools
import pickle

import dataset_files
import numpy as np
import pytest
from dataset_files import (
    NOWHERE,
    TINY,
    TINY100,
    assert_reads,
    bytes_keys_pickle,
    newest_pickle,
    python2_pickle,
    python3_pickle,
    write_official,
)
from image_files import write_folder, write_tinyimagenet

from memo_jax import datasets
from memo_jax.datasets import (
    _cifar,
    cifar10,
    cifar100,
    digits,
    imagenet100,
    imagenet100_first100,
    imagenet1000,
)
from memo_jax.errors import UserError


@pytest.fixture(autouse=True)
def no_prepared_data(tmp_path, monkeypatch):
    return dataset_files.hide_prepared(monkeypatch, tmp_path)


# ---- the contract

SIDE = 8  # of images in files, to be quick


def write_imagenet(spec, root):
    write_folder(root / "ILSVRC2012", spec.SPEC.classes, train=1, test=1)


# Classes and image shape of every dataset, and what puts a sample of it into a directory.
SAMPLES = {
    "cifar10": (10, (32, 32, 3), functools.partial(write_official, cifar10.SPEC)),
    "cifar100": (100, (32, 32, 3), functools.partial(write_official, cifar100.SPEC)),
    "digits": (10, (8, 8, 1), lambda root: None),
    "image_folder": (3, (SIDE, SIDE, 3), write_folder),
    "imagenet100": (100, (SIDE, SIDE, 3), functools.partial(write_imagenet, imagenet100)),
    "imagenet100_first100": (
        100,
        (SIDE, SIDE, 3),
        functools.partial(write_imagenet, imagenet100_first100),
    ),
    "imagenet1000": (1000, (SIDE, SIDE, 3), functools.partial(write_imagenet, imagenet1000)),
    "tinyimagenet": (2, (SIDE, SIDE, 3), write_tinyimagenet),
}


def test_every_dataset_has_a_sample_for_the_contract():
    assert sorted(SAMPLES) == datasets.names()


@pytest.mark.parametrize("name", datasets.names())
def test_contract(name, tmp_path):
    num_classes, image_shape, write = SAMPLES[name]
    write(tmp_path)
    reading = datasets.Reading(image_size=image_shape[0])
    dataset = datasets.load(name, str(tmp_path), "auto", reading)
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
