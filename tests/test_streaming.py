"""Images of the host: the same batches by any number of readers, trained on as if on the device."""

import contextlib
import functools
import os
import re
import signal
import time
from pathlib import Path

import jax
import numpy as np
import pytest
import tiny
from image_files import write_folder, write_image
from PIL import Image
from test_processes import wait_for_epochs

from memo_jax import augment, crops, datasets, exemplars, parallel, streaming, training
from memo_jax.batches import Batches
from memo_jax.datasets import Reading
from memo_jax.errors import UserError
from memo_jax.order import PAD, Order

ORDER = Order((1, 2, 3), size=22, batch=8)
RESIDENT = 9
SHARDING = parallel.sharded(parallel.data_mesh())


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    write_folder(tmp_path / "data", train=5, test=1)
    return tmp_path / "data"


def encoded(folder: Path, workers: int | None = 0) -> datasets.EncodedImages:
    """The 15 training images, of which 13 are used."""
    reading = Reading(streaming="always", workers=workers)
    images = datasets.load("image_folder", str(folder), "local", reading).train.images
    return images.only(np.arange(13))


# ---- what is in a batch


def test_an_epoch_has_every_image_of_the_host_once_at_its_place():
    images = np.random.default_rng(0).integers(0, 256, (13, 2, 2, 3), np.uint8)
    everything = Batches(images, RESIDENT, ORDER, np.arange(8), 0, 6, None)
    assert len(everything) == 6
    for epoch in range(2):
        seen = []
        for step, indices in enumerate(ORDER.of(epoch)):
            batch = everything[3 * epoch + step]
            for image, index in zip(batch, indices):
                if index < RESIDENT:  # PAD, too
                    assert not image.any()
                else:
                    np.testing.assert_array_equal(image, images[index - RESIDENT])
                    seen.append(index)
        assert sorted(seen) == list(range(RESIDENT, 22))
    later = Batches(images, RESIDENT, ORDER, np.array([1, 6]), 4, 6, None)
    assert len(later) == 2
    np.testing.assert_array_equal(later[1], everything[5][[1, 6]])


def test_an_order_visits_everything_once_and_is_padded():
    first, second = ORDER.of(0), ORDER.of(1)
    assert first.shape == (3, 8) and first.dtype == np.int32 and ORDER.steps == 3
    assert sorted(first[first != PAD]) == list(range(22)) and (first.ravel()[22:] == PAD).all()
    assert not np.array_equal(first, second)


@pytest.mark.parametrize("address", [(5, 6), None], ids=["random crops", "centres"])
def test_any_number_of_readers_gives_the_same_batches(folder, address):
    def fetched(workers: int, steps: range) -> list[np.ndarray]:
        images = encoded(folder, workers)
        with streaming.feed(images, RESIDENT, ORDER, steps, address, SHARDING) as batches:
            return [np.asarray(batch) for batch in batches]

    alone, by_two = (fetched(workers, range(7)) for workers in (0, 2))
    assert len(alone) == 7
    np.testing.assert_array_equal(alone, by_two)
    np.testing.assert_array_equal(alone[4:], fetched(0, range(4, 7)))
    index = ORDER.of(1)[2].argmax()  # an image of the host in the last step of the second epoch
    centre = encoded(folder)[ORDER.of(1)[2, [index]] - RESIDENT][0]
    assert np.array_equal(alone[5][index], centre) == (address is None)


# ---- random crops


def test_a_crop_is_the_part_that_was_chosen(tmp_path):
    """PNG: exactly that of Pillow. A large JPEG is read smaller, which changes little."""
    draws = np.random.default_rng(0)
    smooth = Image.fromarray(draws.integers(0, 256, (8, 12, 3), np.uint8))
    smooth = smooth.resize((1200, 800), Image.BICUBIC)
    box = (300, 100, 600, 400)
    expected = smooth.crop((300, 100, 900, 500)).resize((48, 48), Image.BILINEAR)
    for name, tolerance in (("x.png", 0), ("x.jpg", 3)):
        smooth.save(tmp_path / name, quality=95)
        part = datasets._decode.crop(tmp_path / name, 48, lambda *size: {(1200, 800): box}[size])
        assert np.abs(part.astype(int) - np.asarray(expected)).mean() <= tolerance


def test_a_crop_is_chosen_in_the_upright_image(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # the first row is the right side
    image = Image.new("RGB", (40, 20), (0, 0, 255))
    image.paste((255, 0, 0), (0, 0, 10, 20))
    image.save(tmp_path / "x.png", exif=exif)
    chosen = datasets._decode.crop(tmp_path / "x.png", 8, lambda w, h: (0, 0, w, h // 4))
    assert (chosen == (255, 0, 0)).all()


@pytest.mark.parametrize(("width", "height"), [(224, 224), (500, 375), (60, 400)])
def test_boxes_are_drawn_as_those_of_the_device(width, height):
    """Two implementations: fit, ratios and areas alike in distribution."""
    draws = np.random.default_rng(0)
    ours = np.array([crops.random_box(draws, width, height) for _ in range(4000)])
    draw = jax.jit(augment.crop_boxes, static_argnums=(1, 2, 3))
    theirs = np.asarray(draw(jax.random.key(0), 4000, height, width))[:, [1, 0, 3, 2]]
    for boxes in (ours, theirs):
        assert (boxes[:, :2] >= 0).all() and (boxes[:, 2:] > 0).all()
        assert (boxes[:, 0] + boxes[:, 2] <= width).all()
        assert (boxes[:, 1] + boxes[:, 3] <= height).all()
    for measure in (lambda b: b[:, 0], lambda b: b[:, 1], lambda b: b[:, 2] * b[:, 3],
                    lambda b: b[:, 2] / b[:, 3]):  # fmt: skip
        quantiles = [np.quantile(measure(b.astype(float)), [0.1, 0.3, 0.5, 0.7, 0.9])
                     for b in (ours, theirs)]  # fmt: skip
        spread = np.ptp(measure(theirs.astype(float))) + 1e-9
        np.testing.assert_allclose(*quantiles, atol=max(0.04 * spread, 1.0 * (spread > 10)))


def test_images_that_are_cropped_already_are_only_mirrored():
    images = np.random.default_rng(0).integers(0, 256, (32, 24, 24, 3), np.uint8)
    cropped = np.arange(32) < 16
    changed = np.asarray(jax.jit(augment.imagenet)(jax.random.key(3), images, cropped)) * 255
    whole = [
        min(np.abs(after - before).max(), np.abs(after - before[:, ::-1]).max()) < 0.01
        for after, before in zip(changed, images)
    ]
    assert all(whole[:16]) and not any(whole[16:])


# ---- training


def trained(rest_on_host: bool, **changes) -> tuple[dict, training.Report]:
    """Parameters of the tiny problem after two epochs, its new images on the host or not."""
    variables, pool = tiny.variables(), tiny.pool()
    if rest_on_host:
        rest = np.asarray(pool.images[RESIDENT:])
        pool = exemplars.Pool(pool.images[:RESIDENT], pool.labels, rest)
    problem = tiny.problem(variables, **changes)
    state = training.start(problem, variables, pool)
    return training.fit(problem, state, pool, training.Hooks(), scan=False)


def test_training_is_the_same_wherever_the_images_are():
    (ours, report), (theirs, plain) = trained(True), trained(False)
    jax.tree.map(np.testing.assert_array_equal, ours, theirs)
    assert 0 < report.wait_seconds < report.train_seconds
    assert plain.wait_seconds < 0.01 and report.images == plain.images == 44


def test_no_exemplars_and_images_on_the_host():
    labels, images = np.arange(6, dtype=np.int32) % 2, np.full((6, 4, 4, 3), 7, np.uint8)
    placed = parallel.replicated(parallel.data_mesh())
    memory = exemplars.Memory.empty(4, (4, 4, 3), placed)
    pool = exemplars.join(memory, images, labels, placed, on_host=True)
    assert (pool.size, pool.resident, len(pool.images)) == (6, 0, 1)


# ---- errors


def children(parent: int) -> list[int]:
    """The processes that a process has started to read."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended in the meantime
            its_parent = int((place / "stat").read_text().rsplit(")", 1)[1].split()[1])
            if its_parent == parent and b"spawn_main" in (place / "cmdline").read_bytes():
                found.append(int(place.name))
    return found


def test_a_file_that_is_gone_and_a_lost_reader_are_told_in_a_line(folder):
    def fetch(images: datasets.EncodedImages, steps: int) -> None:
        with streaming.feed(images, 0, ORDER, range(steps), None, SHARDING) as batches:
            for number, _ in enumerate(batches):
                if number == 0 and steps > 3:
                    for child in children(os.getpid()):
                        os.kill(child, signal.SIGKILL)

    images = encoded(folder, workers=1)
    images = images.only(np.arange(22) % 13)
    with pytest.raises(UserError, match=r"a process that reads images was lost.*goes on from"):
        fetch(images, 3000)
    Path(images.source[0]).write_text("no image any more")
    with pytest.raises(UserError, match=r"ant/0.png cannot be read \(no JPEG.*put it back"):
        fetch(images, 3)


def test_images_that_cannot_be_read_are_told_before_training(folder):
    write_image(folder / "train/ant/big.jpg", 0, side=400)
    whole = (folder / "train/ant/big.jpg").read_bytes()
    (folder / "train/ant/big.jpg").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(
        UserError, match=r"1 of 19 images cannot be read, such as train/ant/big.jpg"
    ):
        encoded(folder)
    reading = Reading(streaming="always", on_bad_image="skip")
    split = datasets.load("image_folder", str(folder), "local", reading).train
    assert len(split) == len(split.images) == 15
    kept = list(folder.glob(".memo_jax/*checked*"))
    assert len(kept) == 1 and not list(folder.glob(".memo_jax/*train*/images.npy"))
    (folder / "train/ant/big.jpg").write_bytes(whole)
    assert len(datasets.load("image_folder", str(folder), "local", reading).train) == 16


# ---- a whole run

SETTINGS = (
    "--config=configs/image_folder.py",
    "--config.dataset.streaming=always",
    "--config.dataset.augment=imagenet",
    "--config.protocol.increment=1",
    "--config.backbone.name=convnet2",
    "--config.memory.exemplars=6",
    "--config.schedule.batch_size=4",
    "--config.schedule.base_epochs=3",
    "--config.schedule.base_milestones=()",
    "--config.schedule.later_epochs=2",
    "--config.schedule.later_milestones=()",
    "--config.checkpoints.every_epochs=1",
)


@pytest.mark.slow
def test_a_run_that_is_stopped_goes_on_with_other_readers(folder, tmp_path, launch):
    run = functools.partial(launch, *SETTINGS, f"--config.dataset.path={folder}")
    whole = run(f"--workdir={tmp_path / 'whole'}", "--config.dataset.workers=0")
    assert whole.returncode == 0, whole.stderr
    assert "5 new images (0 MB) stay on the host" in whole.stdout
    assert "waiting for images" in whole.stdout
    for epochs, stop in ((2, signal.SIGKILL), (4, signal.SIGTERM)):
        process = run(f"--workdir={tmp_path / 'parts'}", "--config.dataset.workers=2", wait=False)
        wait_for_epochs(tmp_path / "parts", [process], epochs)
        while not (readers := children(process.pid)):  # between two tasks there are none
            assert process.poll() is None, process.communicate()
        process.send_signal(stop)
        said = process.communicate(timeout=60)[1]
        if stop == signal.SIGTERM:
            assert said.endswith("the same command goes on from there\n"), said
            assert "Traceback" not in said and "leaked" not in said
        deadline = time.monotonic() + 20
        while any(Path(f"/proc/{pid}").exists() for pid in readers):
            assert time.monotonic() < deadline, "readers outlive the run"
            time.sleep(0.1)
    rest = run(f"--workdir={tmp_path / 'parts'}", "--config.dataset.workers=1")
    assert rest.returncode == 0 and "resuming" in rest.stdout, rest.stderr
    digests = [
        re.search('"digest": "([0-9a-f]{64})"', (tmp_path / name / "summary.json").read_text())[1]
        for name in ("whole", "parts")
    ]
    assert digests[0] == digests[1]
