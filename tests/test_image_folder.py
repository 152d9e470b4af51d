"""Folders of images: what is found, kept, made anew and told."""

import hashlib
import json
import os
from pathlib import Path

import image_files
import numpy as np
import pytest
from image_files import write_folder, write_image
from PIL import Image

from memo_jax import datasets, host_memory
from memo_jax.datasets import (
    Reading,
    _folder_images,
    _imagenet,
    image_folder,
    imagenet100,
    imagenet100_first100,
    imagenet1000,
    tinyimagenet,
)
from memo_jax.errors import UserError


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user cache"))
    return tmp_path / "user cache"


# ---- what is found


def load(root: Path, **reading) -> datasets.Dataset:
    return datasets.load("image_folder", str(root), "auto", Reading(**reading))


def test_classes_labels_and_images_are_found_whatever_the_names(tmp_path):
    for place in ("train/b/x.PNG", "train/b/deep/y.JpEg", "train/A/1.webp", "val/A/1.jpg"):
        write_image(tmp_path / place, len(place))
    write_image(tmp_path / "test/b/unused.png", 0)
    write_image(tmp_path / "val/b/ü 1.jpg", 0)
    for place in ("train/b/notes.txt", "train/b/._x.png", "train/readme.png", "val/A/Thumbs.db"):
        (tmp_path / place).write_text("no image")
    (tmp_path / "train/.git").mkdir()
    dataset = load(tmp_path)
    assert dataset.class_names == ("A", "b")
    assert dataset.image_shape == (12, 12, 3)  # that of the images
    assert dataset.train.labels.tolist() == [0, 1, 1] and dataset.test.labels.tolist() == [0, 1]
    files = ["train/A/1.webp", "train/b/deep/y.JpEg", "train/b/x.PNG"]
    for image, file in zip(dataset.train.images, files):
        np.testing.assert_array_equal(image, np.asarray(Image.open(tmp_path / file)))


def test_test_is_taken_where_there_is_no_val(tmp_path):
    write_folder(tmp_path)
    (tmp_path / "val").rename(tmp_path / "test")
    assert len(load(tmp_path).test) == 6


def test_the_size_is_the_median_of_shorter_sides_up_to_224_or_as_asked(tmp_path):
    for number, side in enumerate((30, 31, 90)):
        for place in (f"train/a/{number}.png", f"train/b/{number}.png", f"val/a/{number}.png"):
            write_image(tmp_path / place, 0, side)
    write_image(tmp_path / "val/b/0.png", 0)
    assert load(tmp_path).image_shape == (31, 31, 3)
    assert load(tmp_path, image_size=20).image_shape == (20, 20, 3)
    for file in (tmp_path / "train").rglob("*.png"):
        write_image(file, 0, 300)
    assert load(tmp_path).image_shape == (224, 224, 3)


def test_an_outline_lists_files_and_leaves_no_trace(tmp_path):
    write_folder(tmp_path / "data", train=4)
    for path in tmp_path.rglob("*.png"):
        path.write_bytes(path.read_bytes()[:60])  # enough for its size, too little for its pixels
    before = sorted(tmp_path.rglob("*"))
    found = datasets.outline("image_folder", str(tmp_path / "data"), "auto")
    assert found.image_shape == (12, 12, 3)
    assert np.bincount(found.train.labels).tolist() == [4] * 3
    assert np.bincount(found.test.labels).tolist() == [2] * 3
    assert sorted(tmp_path.rglob("*")) == before
    with pytest.raises(UserError, match="18 of 18 images cannot be read"):
        load(tmp_path / "data")


def test_tinyimagenet_as_in_its_archive(tmp_path, caplog):
    image_files.write_tinyimagenet(tmp_path)
    dataset = datasets.load("tinyimagenet", str(tmp_path), "local")
    assert dataset.class_names == ("n01", "n02") and dataset.image_shape == (64, 64, 3)
    files = [f"val/images/val_{number}.JPEG" for number in (0, 2, 1, 3)]
    assert dataset.test.labels.tolist() == [0, 0, 1, 1]
    for image, file in zip(dataset.test.images, files):
        with Image.open(tmp_path / "tiny-imagenet-200" / file) as expected:
            np.testing.assert_array_equal(image, np.asarray(expected))
    assert "2 classes, 4 training and 4 test images instead of the official 200 c" in caplog.text


def digest(names: tuple[str, ...]) -> str:
    return hashlib.sha256("\n".join(names).encode()).hexdigest()[:12]


def test_the_classes_of_imagenet_and_its_two_subsets():
    everything = _imagenet.wnids()
    assert len(set(everything)) == 1000 and list(everything) == sorted(everything)
    assert digest(everything) == "385e02404994"
    drawn, first = imagenet100.SPEC.classes, imagenet100_first100.SPEC.classes
    assert imagenet1000.SPEC.classes == everything and first == everything[:100]
    assert drawn[:3] == ("n01514668", "n01531178", "n01537544") and digest(drawn) == "fce943fa2f5b"
    assert len({*drawn} & {*first}) == 9
    sizes = {s.image_size for s in (imagenet1000.SPEC, imagenet100.SPEC, imagenet100_first100.SPEC)}
    assert sizes == {224} and tinyimagenet.SPEC.image_size == 64
    assert image_folder.SPEC.image_size is None


def test_a_subset_of_imagenet_is_read_from_the_folder_of_all(tmp_path):
    names = imagenet100_first100.SPEC.classes
    write_folder(tmp_path / "imagenet", (*names, "n02085620"), train=1, test=1)
    dataset = datasets.load("imagenet100_first100", str(tmp_path), "auto", Reading(image_size=12))
    assert dataset.class_names == names and len(dataset.train) == len(dataset.test) == 100
    (tmp_path / "imagenet/val" / names[7] / "0.png").unlink()
    with pytest.raises(UserError, match=rf"all 100 classes, found none of 1 .* '{names[7]}'"):
        datasets.load("imagenet100_first100", str(tmp_path), "auto")


# ---- what is kept


def test_what_is_kept_is_used_until_a_file_changes(tmp_path):
    write_folder(tmp_path)
    first = load(tmp_path)
    (kept,) = tmp_path.glob(".memo_jax/image_folder-train-12-*/images.npy")
    marked = np.load(kept, mmap_mode="r+")
    marked[0, 0, 0] = 77, 78, 79  # would not be seen if the images were decoded again
    marked.flush()
    assert load(tmp_path).train.images[0, 0, 0].tolist() == [77, 78, 79]
    write_image(tmp_path / "train/ant/0.png", 999)  # in place: no directory changes
    changed = load(tmp_path)
    assert not np.array_equal(changed.train.images[0], first.train.images[0])
    np.testing.assert_array_equal(changed.train.images[1:], first.train.images[1:])
    assert len(list(tmp_path.glob(".memo_jax/image_folder-train-12-*"))) == 1
    write_image(tmp_path / "train/ant/00.png", 1000)
    assert len(load(tmp_path).train) == 10
    (tmp_path / "train/ant/00.png").unlink()
    np.testing.assert_array_equal(load(tmp_path).train.images, changed.train.images)
    write_image(tmp_path / "train/dog/0.png", 0)
    write_image(tmp_path / "val/dog/0.png", 1)
    assert load(tmp_path).class_names == ("ant", "bee", "cat", "dog")


def test_a_list_of_very_many_files_is_kept_as_long_as_no_directory_changes(tmp_path, monkeypatch):
    monkeypatch.setattr("memo_jax.datasets._folder_index._CHECKED_FILES", 5)
    write_folder(tmp_path)
    load(tmp_path)
    list_file = tmp_path / ".memo_jax/image_folder.json"
    content = json.loads(list_file.read_text())
    list_file.write_text(json.dumps(content | {"classes": ["kept", "bee", "cat"]}))
    assert load(tmp_path).class_names[0] == "kept"
    write_image(tmp_path / "val/cat/new.png", 5)
    assert load(tmp_path).class_names[0] == "ant"


@pytest.mark.parametrize("content", [b"", b"[1]", b"{}", b'{"version": 1, "train": 3}'])
def test_damage_of_what_is_kept_costs_only_time(content, tmp_path):
    write_folder(tmp_path)
    first = load(tmp_path)
    train, test = np.array(first.train.images), np.array(first.test.images)
    (tmp_path / ".memo_jax/image_folder.json").write_bytes(content)
    for file in (".memo_jax/image_folder-train-*/images.npy", ".memo_jax/*test*/bad.json"):
        next(tmp_path.glob(file)).write_bytes(content)
    again = load(tmp_path)
    np.testing.assert_array_equal(again.train.images, train)
    np.testing.assert_array_equal(again.test.images, test)


def test_beside_images_that_nobody_may_write_nothing_is_kept(tmp_path, own_cache):
    root = tmp_path / "shared"
    write_folder(root)
    root.chmod(0o555)
    load(root)
    root.chmod(0o755)
    assert sorted(os.listdir(root)) == ["train", "val"]
    assert len(list(own_cache.glob("memo_jax/images/shared-*/image_folder.json"))) == 1


def test_nothing_is_kept_where_nothing_can_be_written(tmp_path, own_cache):
    root = tmp_path / "shared"
    write_folder(root)
    for place in (root / ".memo_jax", own_cache):
        place.write_text("a file")
    assert len(load(root).train) == 9


# ---- what is told


def spoil(root: Path) -> list[str]:
    """Three images that cannot be read."""
    images = [root / "train/ant/1.png", root / "train/bee/2.png", root / "val/cat/0.png"]
    images[0].write_bytes(images[0].read_bytes()[:200])
    images[1].write_text("no image")
    images[2].write_bytes(b"")
    return [str(image.relative_to(root)) for image in images]


def test_a_bad_image_is_told_in_a_line_each_time_or_left_out(tmp_path, caplog):
    write_folder(tmp_path)
    whole = load(tmp_path)
    bad = spoil(tmp_path)
    for _ in range(2):
        with pytest.raises(UserError) as error:
            load(tmp_path)
        line = str(error.value)
        assert line.startswith(f"{tmp_path}: 3 of 15 images cannot be read, such as {bad[0]} (")
        assert "\n" not in line and "--config.dataset.on_bad_image=skip" in line
    part = load(tmp_path, on_bad_image="skip")
    np.testing.assert_array_equal(part.train.images, np.delete(whole.train.images, [1, 5], axis=0))
    assert part.train.labels.tolist() == [0, 0, 1, 1, 2, 2, 2]
    np.testing.assert_array_equal(part.test.images, np.delete(whole.test.images, 4, axis=0))
    assert "3 of 15 images cannot be read" in caplog.text


def test_a_mended_image_is_read_even_where_files_are_not_looked_at(tmp_path, monkeypatch):
    monkeypatch.setattr("memo_jax.datasets._folder_index._CHECKED_FILES", 5)
    write_folder(tmp_path)
    whole = load(tmp_path)
    spoil(tmp_path)
    (tmp_path / ".memo_jax/image_folder.json").unlink()
    assert len(load(tmp_path, on_bad_image="skip").train) == 7
    write_folder(tmp_path)
    np.testing.assert_array_equal(load(tmp_path).train.images, whole.train.images)


def test_a_class_of_bad_images_only_is_told(tmp_path):
    write_folder(tmp_path, test=1)
    spoil(tmp_path)
    with pytest.raises(UserError, match=r"found none that can be read of 1 classes such as 'cat'"):
        load(tmp_path, on_bad_image="skip")


def test_a_folder_that_does_not_fit_is_told(tmp_path):
    with pytest.raises(UserError, match=r"image_folder was not found \(local: no train/ and val/"):
        load(tmp_path)
    write_folder(tmp_path, ("ant",))
    with pytest.raises(UserError, match="at least two classes, found 1; say where"):
        load(tmp_path)
    write_image(tmp_path / "val/bee/0.png", 0)
    with pytest.raises(UserError, match=r"train: expected images .* none of 1 .* such as 'bee'"):
        load(tmp_path)
    with pytest.raises(UserError, match="there is no 'tfds'"):
        datasets.load("image_folder", str(tmp_path), "tfds")


def test_annotations_that_are_none_are_told(tmp_path):
    image_files.write_tinyimagenet(tmp_path)
    file = tmp_path / "tiny-imagenet-200/val/val_annotations.txt"
    file.write_text("val_0.JPEG n01\n")
    with pytest.raises(UserError, match=f"{file}: expected lines of file name, tab and class"):
        datasets.load("tinyimagenet", str(tmp_path), "auto")


def test_images_that_exceed_the_memory_are_told_before_any_is_decoded(tmp_path):
    write_folder(tmp_path)
    spoil(tmp_path)  # would be told first if it were decoded
    with pytest.raises(UserError, match=r"15 images of 1000000 x 1000000 .* need 90000\.0 GB"):
        load(tmp_path, image_size=1_000_000, streaming="never")
    with pytest.raises(UserError, match=r"6 images of 1000000 x 1000000 .* need 36000\.0 GB"):
        load(tmp_path, image_size=1_000_000)
    assert 2**20 < host_memory.available_memory() < 2**50
    needed = 2 * 1000 * 224 * 224 * 3
    _folder_images.check_memory(tmp_path, 1000, 224, needed)
    _folder_images.check_memory(tmp_path, 1000, 224, None)
    with pytest.raises(UserError, match=r"image_size=223 or smaller"):
        _folder_images.check_memory(tmp_path, 1000, 224, needed - 1)


def test_arrays_are_not_resized():
    with pytest.raises(UserError, match=r"digits, whose images have 8 x 8 .*, found 16; unset it"):
        datasets.load("digits", "", "auto", Reading(image_size=16))
    assert datasets.load("digits", "", "auto", Reading(image_size=8)).image_shape == (8, 8, 1)


# ---- a run


def test_a_run_on_ones_own_images(tmp_path, launch):
    write_folder(tmp_path / "data", ("ant", "bee", "cat", "dog"), train=5, test=2)
    write_image(tmp_path / "data/train/ant/0.png", 0, 30)
    (tmp_path / "data/train/dog/1.png").write_text("no image")
    args = [
        "--config=configs/image_folder.py:replay",
        f"--config.dataset.path={tmp_path / 'data'}",
        "--config.protocol.increment=2",
        "--config.backbone.name=resnet8",
        "--config.memory.exemplars=8",
        "--config.schedule.batch_size=4",
        "--config.schedule.base_epochs=1",
        "--config.protocol.stop_after=1",
        f"--workdir={tmp_path / 'run'}",
    ]
    done = launch(*args, "--config.dataset.on_bad_image=skip")
    assert "1 of 28 images cannot be read, such as train/dog/1.png (no JPEG" in done.stderr
    assert done.returncode == 0, done.stderr
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    assert summary["tasks_done"] == 1 and summary["dataset"] == "image_folder"
    resolved = json.loads((tmp_path / "run/config.json").read_text())["resolved"]
    assert resolved["dataset"]["image_size"] == 12
