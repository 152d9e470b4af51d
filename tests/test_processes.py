"""Two processes on this host learn what one learns, and stop together."""

import contextlib
import json
import re
import signal
import socket
import subprocess
import time

import numpy as np
import pytest
from orbax.checkpoint import v1 as ocp

from memo_jax import hosts

SETTINGS = (
    "--config=configs/digits_b0i2.py",
    "--config.protocol.increment=5",
    "--config.backbone.name=convnet2",
    "--config.schedule.learning_rate=0.01",  # at which rounding is not amplified
    "--config.schedule.base_epochs=6",
    "--config.schedule.base_milestones=(3,)",
    "--config.schedule.later_epochs=2",
    "--config.schedule.later_milestones=()",
    "--config.checkpoints.every_epochs=1",
)


@pytest.fixture
def start_two(launch):
    """Starts two processes of one run in a folder, as on two hosts."""
    with contextlib.ExitStack() as stack:

        def start(workdir) -> list[subprocess.Popen]:
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                meeting = f"--coordinator=127.0.0.1:{probe.getsockname()[1]}"
            which = (meeting, "--processes=2", "--process={}", f"--workdir={workdir}")
            both = [
                launch(*SETTINGS, *(word.format(i) for word in which), wait=False) for i in range(2)
            ]
            for process in both:
                stack.callback(process.wait)
                stack.callback(process.kill)
            return both

        yield start


def epochs_logged(workdir) -> list[tuple[int, int]]:
    """(task, epoch) of the log's lines, in order."""
    path = workdir / "metrics.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    rows = [json.loads(line) for line in lines]
    return [(row["task"], row["epoch"]) for row in rows if row["kind"] == "epoch"]


def wait_for_epochs(workdir, processes, number: int) -> None:
    """Returns when so many epochs have been logged."""
    deadline = time.monotonic() + 200
    while len(epochs_logged(workdir)) < number:
        assert all(p.poll() is None for p in processes), [p.communicate() for p in processes]
        assert time.monotonic() < deadline
        time.sleep(0.05)


def variables(workdir, task: int) -> dict[str, np.ndarray]:
    """Parameters and statistics in a task's checkpoint, by path."""
    saved = ocp.load(workdir.absolute() / "checkpoints" / f"task_{task:03d}")
    return {name: np.asarray(leaf) for name, leaf in saved.items() if name.startswith("variables")}


@pytest.mark.slow
def test_two_processes_learn_what_one_learns_and_stop_together(launch, start_two, tmp_path):
    # One is lost: the other says so and ends, soon.
    both = start_two(tmp_path / "two")
    wait_for_epochs(tmp_path / "two", both, 2)
    both[1].kill()
    began = time.monotonic()
    errors = both[0].communicate(timeout=90)[1]
    assert time.monotonic() - began < 60
    assert both[0].returncode not in (0, 2)
    assert errors.splitlines()[-1] == hosts.LOST
    # Again, from the last checkpoint; only the second is asked to stop, both save and end.
    both = start_two(tmp_path / "two")
    wait_for_epochs(tmp_path / "two", both, 4)
    both[1].send_signal(signal.SIGTERM)
    for process in both:
        assert "stopped by SIGTERM" in process.communicate(timeout=90)[1]
        assert process.returncode == 128 + signal.SIGTERM
    # One process reads what two have saved, and ends where one that was never stopped ends.
    rest = launch(*SETTINGS, f"--workdir={tmp_path / 'two'}")
    assert rest.returncode == 0 and "resuming" in rest.stdout, rest.stderr
    one = launch(*SETTINGS, f"--workdir={tmp_path / 'one'}")
    assert one.returncode == 0, one.stderr
    every_epoch = [(0, n) for n in range(1, 7)] + [(1, 1), (1, 2)]
    assert epochs_logged(tmp_path / "two") == epochs_logged(tmp_path / "one") == every_epoch
    ours, theirs = variables(tmp_path / "two", 0), variables(tmp_path / "one", 0)
    assert len(ours) > 10 and ours.keys() == theirs.keys()
    for name in ours:
        np.testing.assert_allclose(ours[name], theirs[name], atol=1e-3, err_msg=name)
    accuracies = [
        json.loads((tmp_path / name / "summary.json").read_text())["accuracy"]["head"]
        for name in ("two", "one")
    ]
    np.testing.assert_allclose(*accuracies, atol=0.5)


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (
            ("--coordinator=127.0.0.1:1",),
            r"expected --coordinator, --processes, --process together",
        ),
        (
            ("--coordinator=h:1", "--processes=2", "--process=2"),
            "--process: expected 0 to 1, found",
        ),
    ],
)
def test_flags_that_do_not_go_together_are_one_line(flags, expected, launch, tmp_path):
    done = launch(*SETTINGS, *flags, f"--workdir={tmp_path / 'run'}")
    assert done.returncode == 2 and not (tmp_path / "run").exists()
    assert re.fullmatch(f"error: {expected}.*\n", done.stderr)
