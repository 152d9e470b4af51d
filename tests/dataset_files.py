"""Official CIFAR files of a few images, made by hand, for the tests of the datasets."""

import dataclasses
import pickle
import struct
from pathlib import Path

import numpy as np

from memo_jax import datasets
from memo_jax.datasets import cifar10, cifar100

NOWHERE = "http://127.0.0.1:9"  # the discard port: connections are refused at once
CLASSES = 4
TINY = [
    dataclasses.replace(official, num_classes=CLASSES, sizes=sizes, url=f"{NOWHERE}/tiny.tar.gz")
    for official, sizes in ((cifar10.SPEC, (20, 4)), (cifar100.SPEC, (4, 4)))
]
TINY100 = TINY[1]


def hide_prepared(monkeypatch, tmp_path: Path) -> Path:
    """Whatever the machine has prepared with tensorflow-datasets stays out of a test."""
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "tfds"))
    return tmp_path / "tfds"


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
