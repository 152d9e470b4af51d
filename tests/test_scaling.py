"""How time and memory grow: a tiny real run of the command, its arithmetic, and its error lines."""

import json
import os
import pathlib
import statistics
import subprocess
import sys

import pytest

from benchmarks import scaling, scaling_settings
from benchmarks.scaling_estimate import estimate
from benchmarks.scaling_points import Stream
from configs import cifar_b0i10, cifar_b50i5, digits_b0i2
from memo_jax import datasets
from memo_jax.errors import UserError

ROOT = pathlib.Path(__file__).parent.parent
DIGITS = "--config=configs/digits_b0i2.py"
TOO_LARGE = 10_000_000
"""Images in a step that no machine has the memory for."""
QUICK = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
"""Compiles in a quarter of the time what is slow then."""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """(folder, scaling.json, the finished command) of all axes on digits, one batch too large."""
    folder = tmp_path_factory.mktemp("scaling")
    args = ["--blocks=1,2", f"--batch=32,{TOO_LARGE}", "--exemplars=20", "--classes=8"]
    args += ["--devices=2", "--repeats=2", "--steps=1", f"--out={folder}", DIGITS]
    args += ["--config.backbone.name=convnet2", "--config.dataset.augment=none"]
    args += ["--config.train.eval_batch_size=100", "--config.protocol.stop_after=2"]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.scaling", *args],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=500,
        env={**os.environ, "XLA_FLAGS": QUICK},
    )
    log = folder / "scaling.log"
    assert done.returncode == 1, done.stderr + (log.read_text()[-2000:] if log.exists() else "")
    return folder, json.loads((folder / "scaling.json").read_text()), done


@pytest.mark.slow
def test_every_axis_is_measured_at_its_values(run):
    axes = run[1]["axes"]
    assert {axis: [row["value"] for row in rows] for axis, rows in axes.items()} == {
        "blocks": [1, 2],
        "batch": [32],
        "exemplars": [20],
        "classes": [8],
        "devices": [2],
    }
    assert {axis: list(rows[0]["measured"]) for axis, rows in axes.items()} == {
        "blocks": ["train", "herding", "evaluate"],
        "batch": ["train", "forward"],
        "exemplars": ["herding", "means", "evaluate"],
        "classes": ["train", "herding", "evaluate"],
        "devices": ["train", "evaluate"],
    }
    for row in (row for rows in axes.values() for row in rows):
        for found in row["measured"].values():
            assert len(found["seconds"]) == 2 and all(s > 0 for s in found["seconds"])
            assert found["median"] == pytest.approx(statistics.median(found["seconds"]))
            assert found["images_per_second"] * found["median"] == pytest.approx(found["images"])


@pytest.mark.slow
def test_what_an_axis_changes_is_what_was_measured(run):
    axes = run[1]["axes"]
    assert [row["blocks"] for row in axes["blocks"]] == [1, 2]
    assert [row["classes"] for row in axes["blocks"]] == [2, 4]
    (batch,) = axes["batch"]
    assert [found["images"] for found in batch["measured"].values()] == [32, 32]
    (exemplars,) = axes["exemplars"]
    assert exemplars["exemplars"] == exemplars["measured"]["means"]["images"] == 20
    (classes,) = axes["classes"]
    assert classes["classes"] == 8 and classes["blocks"] == 2
    assert axes["devices"][0]["devices"] == 2 and batch["devices"] == 1
    assert axes["devices"][0]["measured"]["train"]["images"] == 64


@pytest.mark.slow
def test_memory_is_that_of_the_arrays(run):
    axes = run[1]["axes"]
    # 3x3 convolutions of 64 channels with bias and BatchNorm: the first of one grey channel is
    # the trunk, the second a block.
    trunk, block = 9 * 64 + 64 + 2 * 64, 9 * 64 * 64 + 64 + 2 * 64
    blocks = [row["bytes"]["parameters"] for row in axes["blocks"]]
    assert blocks == [4 * (trunk + block), 4 * (trunk + 2 * block)]
    exemplars = [row["bytes"]["exemplars"] for row in axes["exemplars"] + axes["blocks"]]
    assert exemplars == [20 * 8 * 8, 200 * 8 * 8, 200 * 8 * 8]
    for row in axes["blocks"]:
        held = row["bytes"]
        assert held["step_arguments"] > held["training_state"] > held["parameters"]
        assert held["step_total"] > held["step_temporary"] > 0
    pools = [row["bytes"]["pool"] for row in axes["blocks"]]
    assert pools == [290 * (8 * 8 + 4), 490 * (8 * 8 + 4)]


@pytest.mark.slow
def test_the_estimate_is_the_sum_of_its_steps(run):
    _, results, _ = run
    found, rows = results["estimate"], results["axes"]["blocks"]
    step, batch, herding = (
        [row["measured"][phase]["median"] for row in rows]
        for phase in ("train", "evaluate", "herding")
    )
    compiling = [[m["compile_seconds"] for m in row["measured"].values()] for row in rows]
    # 145 + 145 images in batches of 64 for 12 epochs, then 200 exemplars and 144 + 144 images;
    # 72 and 144 test images in batches of 100.
    by_hand = {
        "train": 12 * 5 * step[0] + 12 * 8 * step[1],
        "compile": sum(compiling[0]) + sum(compiling[1]),
        "exemplars": 3 * batch[0] + herding[0] + 5 * batch[1] + herding[1],
        "evaluate": 1 * batch[0] + 2 * batch[1],
    }
    total = found["seconds"].pop("total")
    assert found["seconds"] == pytest.approx(by_hand)
    assert total == pytest.approx(sum(by_hand.values()))
    assert found["measured_tasks"] == [1, 2]


@pytest.mark.slow
def test_a_value_that_fails_ends_its_axis_in_one_line(run):
    _, results, done = run
    (failed,) = results["failed"]
    assert failed.startswith(f"batch {TOO_LARGE}: a training step needs ")
    assert f"error: {failed}\n" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.slow
def test_table_and_plots_say_what_was_measured(run):
    folder, results, done = run
    table = (folder / "table.md").read_text()
    assert table in done.stdout
    assert "memo on digits (digits_b0i2), convnet2, 2 tasks" in table
    assert "random bytes" in table and "virtual devices of one CPU" in table
    assert "Estimate of the whole run" in table and "--classes=8" in results["about"]["command"]
    for name in ("blocks", "batch", "exemplars", "classes", "devices", "estimate"):
        assert (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def rows(steps: dict[int, float]) -> list[dict]:
    """Measurements of tasks whose training step took so many seconds, and all else none."""
    free = {"median": 0.0, "compile_seconds": 0.0}
    return [
        {
            "value": n,
            "measured": {"train": {**free, "median": s}, "herding": free, "evaluate": free},
        }
        for n, s in steps.items()
    ]


def test_between_measured_tasks_an_estimate_is_linear(tmp_path):
    stream = Stream.of(digits_b0i2.get_config(), tmp_path)
    measured = rows({1: 1.0, 2: 3.0, 5: 9.0})
    found = estimate(stream.job, stream.train_sizes, stream.test_sizes, measured)
    # 12 epochs of 5 steps, then of 8: at most 200 exemplars and 288 images.
    by_hand = [60 * 1, 96 * 3, 96 * 5, 96 * 7, 96 * 9]
    assert [task["seconds"]["train"] for task in found["tasks"]] == pytest.approx(by_hand)
    assert found["seconds"]["total"] == pytest.approx(sum(by_hand))


def test_the_numbers_of_a_dataset_are_those_of_its_images(tmp_path):
    stream, real = (
        Stream.of(digits_b0i2.get_config(), tmp_path),
        datasets.load("digits", "", "auto"),
    )
    assert stream.train_sizes.sum() == len(real.train)
    assert stream.test_sizes.sum() == len(real.test)
    assert (stream.num_classes, stream.image_shape) == (real.num_classes, real.image_shape)


def pool(point) -> int:
    """How many images the task of a point learns from."""
    return len(point.job.pool_rows(point.job.load().train.labels, point.task))


def test_a_point_is_the_task_of_a_run(tmp_path):
    memo = Stream.of(cifar_b0i10.get_config(), tmp_path)
    assert memo.job.exemplars == 3312
    # 3312 // 20 exemplars of 20 classes; beyond the last task 3312 // 190 of 190.
    assert pool(memo.point("blocks", 3)) == 20 * 165 + 5000
    assert pool(memo.point("blocks", 20)) == 190 * 17 + 5000
    assert memo.point("blocks", 20).task.num_seen == 200
    # More slots than the base task has images.
    replay = Stream.of(cifar_b0i10.get_config("replay"), tmp_path).point("estimate", 1)
    assert pool(replay) == 5000 and replay.job.exemplars == 7431
    # 3312 // 990, and the same number of new classes as with 100.
    assert pool(memo.point("classes", 1000)) == 990 * 3 + 5000
    assert pool(memo.point("exemplars", 20000)) == 90 * 222 + 5000


def test_along_an_axis_nothing_else_changes(tmp_path):
    streams = [Stream.of(c.get_config(), tmp_path) for c in (cifar_b0i10, cifar_b50i5)]
    for stream, learns in zip(streams, (True, False)):
        for axis, value in (("classes", 10), ("classes", 1000), ("exemplars", 500), ("batch", 32)):
            point = stream.point(axis, value)
            # Though the first of the two tasks has another number of classes now.
            assert point.job.options["train_trunk"] == learns
            assert point.job.blocks(point.task) == 2
            assert point.job.exemplars == (500 if axis == "exemplars" else stream.job.exemplars)
            assert point.job.batch_size == (32 if axis == "batch" else 128)


@pytest.fixture
def parse(monkeypatch):
    """The settings of some arguments."""

    def parse(*args: str) -> scaling_settings.Wanted:
        monkeypatch.setattr(sys, "argv", ["scaling.py", *args])
        return scaling_settings.parse(sys.argv, "")

    return parse


CPU = {"platform": "cpu", "devices": 1, "memory_bytes": 2**34}
GPUS = {"platform": "gpu", "devices": 2, "memory_bytes": 2**36}


def values(agenda) -> dict[str, list[int]]:
    return {axis: [point.value for point in points] for axis, points in agenda.points.items()}


def test_a_cpu_is_asked_for_less_and_says_so(parse):
    agenda = scaling_settings.settle(parse("--config=configs/cifar_b0i10.py"), CPU)
    found = values(agenda)
    assert found["blocks"] == [1, 2, 5, 10] and found["exemplars"][-1] == 20000
    assert any(line.startswith("blocks 15, 20: ") for line in agenda.left_out)
    gpus = scaling_settings.settle(parse("--config=configs/cifar_b0i10.py"), GPUS)
    assert values(gpus)["blocks"] == [1, 2, 5, 10, 15, 20] and gpus.repeats > agenda.repeats
    assert values(gpus)["devices"] == [1, 2]
    assert [line.split(":")[0] for line in gpus.left_out] == ["devices 4", "devices 8"]


def test_usual_values_that_do_not_fit_are_left_out(parse):
    agenda = scaling_settings.settle(parse(DIGITS), CPU)
    found = values(agenda)
    # 1442 images; 200 exemplars.
    assert found["exemplars"] == [500] and found["classes"] == [10, 100]
    assert any(line.startswith("classes 1000: ") for line in agenda.left_out)
    # Tasks 1, 2 and 5 of its five, for the estimate, and what was asked for.
    assert values(scaling_settings.settle(parse(DIGITS, "--blocks=3"), CPU))["blocks"] == [
        1,
        2,
        3,
        5,
    ]


def test_a_method_with_one_block_is_estimated_from_its_tasks(parse):
    agenda = scaling_settings.settle(parse("--config=configs/digits_b0i2.py:finetune"), CPU)
    assert list(agenda.points) == ["batch", "classes", "devices", "estimate"]
    assert values(agenda)["estimate"] == [1, 2, 5]
    assert agenda.points["estimate"][0].phases == ("train", "evaluate")
    assert {line.split(":")[0] for line in agenda.left_out} >= {"blocks", "exemplars"}


def test_what_a_device_cannot_hold_is_refused(parse):
    with pytest.raises(UserError, match=r"^blocks 40: .* take \d+ MB, the device has 4 MB"):
        scaling_settings.settle(parse(DIGITS, "--blocks=1,40"), {**CPU, "memory_bytes": 2**22})
    with pytest.raises(UserError, match=r"^devices 4: .* 2 devices"):
        scaling_settings.settle(parse(DIGITS, "--devices=4"), GPUS)


# arguments -> what the line must name
MISTAKES = {
    "no config": ([], ["--config"]),
    "unknown option": ([DIGITS, "--block=1"], ["block"]),
    "unknown setting": ([DIGITS, "--config.bach=1"], ["bach"]),
    "folder of launch.py": ([DIGITS, "--workdir=runs/x"], ["--workdir", "--out"]),
    "unknown axis": ([DIGITS, "--axes=blocks,time"], ["--axes", "'time'", "estimate"]),
    "no axis": ([DIGITS, "--axes="], ["--axes", "''", "estimate"]),
    "axis not asked for": ([DIGITS, "--axes=batch", "--classes=4"], ["--classes", "--axes"]),
    "no number": ([DIGITS, "--blocks=1,two"], ["--blocks", "1,2,5", "1,two"]),
    "negative": ([DIGITS, "--batch=-4"], ["--batch", "above 0", "-4"]),
    "zero": ([DIGITS, "--devices=0"], ["--devices", "above 0", "0"]),
    "no repeats": ([DIGITS, "--repeats=0"], ["--repeats", "0"]),
    "no steps": ([DIGITS, "--steps=0"], ["--steps", "0"]),
    "too many exemplars": ([DIGITS, "--exemplars=5000"], ["exemplars 5000", "1450", "lower"]),
    "too few exemplars": ([DIGITS, "--blocks=200"], ["blocks 200", "400 classes", "200"]),
    "one class": ([DIGITS, "--classes=1"], ["classes 1", "2 classes"]),
    "devices": ([DIGITS, "--devices=3"], ["devices 3", "batch_size", "64"]),
    "one block": (
        ["--config=configs/digits_b0i2.py:replay", "--blocks=2"],
        ["replay", "one block"],
    ),
    "a study": (["--config=configs/studies/rho.py"], ["rho.py", "study"]),
    "folder": ([DIGITS, "--out=/dev/null/x"], ["--out", "/dev/null/x"]),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_one_line_names_the_mistake_before_any_work(mistake, capsys, monkeypatch, tmp_path):
    args, named = MISTAKES[mistake]
    monkeypatch.setattr(sys, "argv", ["scaling.py", f"--out={tmp_path}/out", *args])
    assert scaling.main(sys.argv) == 2
    line = capsys.readouterr().err
    assert line.startswith("error: ") and line.count("\n") == 1, line
    assert all(word in line for word in named), line
    assert not (tmp_path / "out").exists()
