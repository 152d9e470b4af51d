"""Whole runs through the real entry point: results, interruption, resumption."""

import json
import pathlib
import shutil
import signal
import time

import numpy as np
import pytest

from memo_jax import metrics

TINY = (
    "--config=configs/digits_b0i2.py",
    "--config.protocol.increment=4",  # tasks of 4, 4 and 2 classes
    "--config.schedule.base_epochs=4",
    "--config.schedule.base_milestones=(3,)",
    "--config.schedule.later_epochs=4",
    "--config.schedule.later_milestones=(3,)",
    "--config.checkpoints.every_epochs=1",
)


def run_tiny(launch, workdir: pathlib.Path, *more: str, **options):
    return launch(*TINY, f"--workdir={workdir}", *more, **options)


def summary_of(workdir: pathlib.Path) -> dict:
    return json.loads((workdir / "summary.json").read_text())


def lines_of(workdir: pathlib.Path, kind: str) -> list[dict]:
    rows = map(json.loads, (workdir / "metrics.jsonl").read_text().splitlines())
    return [row for row in rows if row["kind"] == kind]


@pytest.fixture(scope="module")
def whole(launch, tmp_path_factory) -> pathlib.Path:
    """The folder of an uninterrupted run."""
    workdir = tmp_path_factory.mktemp("whole") / "run"
    done = run_tiny(launch, workdir)
    assert done.returncode == 0, done.stderr
    assert "average" in done.stdout and str(workdir / "summary.json") in done.stdout
    return workdir


def wait_for(process, condition, what: str) -> None:
    """Waits until the condition holds, while the process lives."""
    deadline = time.monotonic() + 300
    while not condition():
        assert process.poll() is None, f"ended before {what}: {process.communicate()}"
        assert time.monotonic() < deadline, f"no {what} in time"
        time.sleep(0.01)


def test_summary_agrees_with_the_confusion_matrices(whole):
    summary = summary_of(whole)
    assert summary["num_tasks"] == summary["tasks_done"] == 3
    assert summary["classes_seen"] == [4, 8, 10]
    assert summary["setting"] == "b0i4" and summary["method"] == "memo"
    for task in range(3):
        with np.load(whole / "confusion" / f"task_{task:03d}.npz") as file:
            for rule in ("head", "nearest_mean"):
                matrix = file[rule]
                assert matrix.shape == (summary["classes_seen"][task],) * 2
                accuracy = 100 * np.trace(matrix) / matrix.sum()
                assert summary["accuracy"][rule][task] == pytest.approx(accuracy)
    assert summary["average_accuracy"] == pytest.approx(np.mean(summary["accuracy"]["head"]))
    assert summary["last_accuracy"] == summary["accuracy"]["head"][-1]
    assert set(metrics.SUMMARIES) <= set(summary)
    parts = [value for name, value in summary["seconds"].items() if name != "total"]
    assert summary["seconds"]["total"] == pytest.approx(sum(parts))
    assert summary["images_per_second"] > 0


def test_a_short_schedule_already_learns_digits(whole):
    assert summary_of(whole)["accuracy"]["head"][0] > 60  # chance is 25 %


def test_memory_is_that_of_the_real_arrays(whole):
    from memo_jax import backbones, network

    memory = summary_of(whole)["memory"]
    net = network.build(backbones.get("resnet8"), (8, 8, 1), "memo", "last_stage")
    assert memory["parameters"] == net.num_parameters(3)
    assert memory["exemplars"] == 200
    assert memory["exemplar_mb"] == pytest.approx(200 * 64 / 2**20)
    assert memory["total_mb"] == pytest.approx(memory["exemplar_mb"] + memory["model_mb"])


def test_run_folder_is_complete(whole):
    assert (whole / "report" / "accuracy.png").stat().st_size > 5000
    assert list((whole / "tensorboard").glob("events*"))
    checkpoints = sorted(path.name for path in (whole / "checkpoints").iterdir())
    assert checkpoints == ["task_000", "task_001", "task_002"]
    config = json.loads((whole / "config.json").read_text())
    assert config["requested"]["protocol"]["increment"] == 4
    assert config["resolved"]["method"]["train_trunk"] is True
    assert config["resolved"]["schedule"]["later"]["epochs"] == 4
    assert config["versions"]["jax"] and config["devices"]
    epochs = [(row["task"], row["epoch"]) for row in lines_of(whole, "epoch")]
    assert epochs == [(task, epoch) for task in range(3) for epoch in range(1, 5)]
    assert all(0 <= row["accuracy"] <= 100 for row in lines_of(whole, "epoch"))
    assert [row["task"] for row in lines_of(whole, "task")] == [0, 1, 2]


def test_finished_run_recomputes_nothing(whole, launch):
    before = {path: path.stat().st_mtime_ns for path in whole.rglob("*") if path.is_file()}
    again = run_tiny(launch, whole)
    assert again.returncode == 0 and "finished" in again.stdout
    assert {path: path.stat().st_mtime_ns for path in whole.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("content", [None, "", "{}", "[]"])
def test_a_lost_or_torn_summary_is_written_again(whole, launch, tmp_path, content):
    workdir = tmp_path / "run"
    shutil.copytree(whole, workdir)
    expected = summary_of(workdir)
    (workdir / "summary.json").unlink()
    if content is not None:
        (workdir / "summary.json").write_text(content)
    done = run_tiny(launch, workdir)
    assert done.returncode == 0, done.stderr
    assert summary_of(workdir) == expected


def test_another_config_in_the_folder_is_refused(whole, launch):
    other = run_tiny(launch, whole, "--config.seed=7", "--config.method.alpha_aux=0.5")
    assert other.returncode == 2
    assert "seed: 1 there, 7 here" in other.stderr
    assert "method.alpha_aux: 1.0 there, 0.5 here" in other.stderr
    assert "Traceback" not in other.stderr


def test_killed_and_terminated_run_ends_bit_equal(whole, launch, tmp_path):
    workdir = tmp_path / "run"
    process = run_tiny(launch, workdir, wait=False)
    rolling = lambda task: list((workdir / "checkpoints").glob(f"rolling_{task:03d}_*"))  # noqa: E731
    wait_for(process, lambda: rolling(1), "rolling checkpoint in the second task")
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL

    process = run_tiny(launch, workdir, wait=False)
    wait_for(process, lambda: rolling(2), "rolling checkpoint in the third task")
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 128 + signal.SIGTERM, err
    assert "resuming" in out
    assert "stopped by SIGTERM" in err and "saved" in err and "Traceback" not in err

    last = run_tiny(launch, workdir)
    assert last.returncode == 0, last.stderr
    assert "resuming inside task 3" in last.stdout
    expected, resumed = summary_of(whole), summary_of(workdir)
    for key in ("digest", "accuracy", "accuracy_matrix", "top5", "forgetting"):
        assert resumed[key] == expected[key], key
    for kind in ("epoch", "task"):
        place = [(row["task"], row.get("epoch")) for row in lines_of(workdir, kind)]
        assert place == [(row["task"], row.get("epoch")) for row in lines_of(whole, kind)]


@pytest.mark.parametrize("damage", ["truncated", "changed"])
def test_torn_checkpoint_is_skipped_and_learned_again(whole, launch, tmp_path, damage):
    workdir = tmp_path / "run"
    shutil.copytree(whole, workdir)
    (workdir / "summary.json").unlink()
    files = [p for p in (workdir / "checkpoints" / "task_002").rglob("*") if p.is_file()]
    largest = max(files, key=lambda path: path.stat().st_size)
    content = bytearray(largest.read_bytes())
    if damage == "truncated":
        content = content[: len(content) // 2]
    else:
        content[len(content) // 2] ^= 0xFF
    largest.write_bytes(content)
    again = run_tiny(launch, workdir)
    assert again.returncode == 0, again.stderr
    assert "skipped the damaged checkpoint task_002" in again.stderr
    assert "resuming" in again.stdout and "after task 2 of 3" in again.stdout
    assert summary_of(workdir)["digest"] == summary_of(whole)["digest"]


def test_loss_that_is_not_finite_stops_and_keeps_the_last_checkpoint(launch, tmp_path):
    workdir = tmp_path / "run"
    done = run_tiny(
        launch, workdir, "--config.schedule.learning_rate=1e30", "--config.method.alpha_aux=2"
    )
    assert done.returncode == 2
    assert "task 1, epoch" in done.stderr and "step" in done.stderr
    assert "not finite" in done.stderr and "Traceback" not in done.stderr
    assert not (workdir / "summary.json").exists()
