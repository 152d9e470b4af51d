"""Two processes on this host learn what one learns, and stop together.

Each has two devices, and the four share the images: one process alone holds but half of them.
"""

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
    "--config.memory.exemplars=201",  # not a multiple of the devices
    "--config.dataset.streaming=always",  # each fetches its part of a batch
    "--config.schedule.learning_rate=0.01",  # at which rounding is not amplified
    "--config.schedule.base_epochs=6",
    "--config.schedule.base_milestones=(3,)",
    "--config.schedule.later_epochs=2",
    "--config.schedule.later_milestones=()",
    "--config.checkpoints.every_epochs=1",
)
SHARED = (*SETTINGS, "--config.memory.placement=sharded")


@pytest.fixture
def start_two(launch, monkeypatch):
    """Starts two processes in a folder, as on two hosts, each with its own flags."""
    with contextlib.ExitStack() as stack:

        def start(workdir, first=SHARED, second=SHARED) -> list[subprocess.Popen]:
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                meeting = f"--coordinator=127.0.0.1:{probe.getsockname()[1]}"
            which = (meeting, "--processes=2", "--process={}", f"--workdir={workdir}")
            with monkeypatch.context() as each:
                each.setenv("JAX_NUM_CPU_DEVICES", "2")
                both = [
                    launch(*flags, *(word.format(i) for word in which), wait=False)
                    for i, flags in enumerate((first, second))
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
    path = workdir.absolute() / "checkpoints" / f"task_{task:03d}"
    shapes = ocp.metadata(path).metadata.items()
    # Asked for NumPy arrays Orbax does not look for the devices that wrote them.
    saved = ocp.load(path, {name: np.zeros(leaf.shape, leaf.dtype) for name, leaf in shapes})
    return {name: leaf for name, leaf in saved.items() if name.startswith("variables")}


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


STUDY = """
from configs import digits_b0i2, studies
from memo_jax.study import Case, declare

def get_config(scale="digits"):
    cases = [Case("a", {{}}), Case("b", {{"memory.selection": "{selection}"}})]
    return declare(studies.start(scale, digits_b0i2), kind="settings", title="made", cases=cases)
"""


def study_flags(folder, selection: str = "herding") -> tuple[str, ...]:
    """A study of two runs, in a file of its own."""
    folder.mkdir()
    (folder / "made.py").write_text(STUDY.format(selection=selection))
    return (f"--config={folder / 'made.py'}",)


@pytest.mark.slow
def test_of_a_study_no_process_goes_on_alone(start_two, tmp_path):
    good = study_flags(tmp_path / "good")
    # The data of the second are missing, as it finds when the first run begins.
    first, second = start_two(tmp_path / "study", good, (*good, "--config.dataset.source=local"))
    assert "error: dataset.source: digits" in second.communicate(timeout=90)[1]
    assert second.returncode == 2
    assert first.communicate(timeout=90)[1].splitlines()[-1] == hosts.LOST
    assert first.returncode not in (0, 2)
    assert not (tmp_path / "study" / "b-seed1").exists()
    # The second cannot even plan its second run.
    first, second = start_two(tmp_path / "other", good, study_flags(tmp_path / "bad", "herdin"))
    ends = [process.communicate(timeout=90)[1].splitlines()[-1] for process in (first, second)]
    assert ends[0] == "error: another process cannot run some of these runs, and says why"
    assert ends[1].startswith("error: b-seed1: memory.selection: there is no 'herdin'")
    assert first.returncode == second.returncode == 2
    assert not (tmp_path / "other").exists()


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
