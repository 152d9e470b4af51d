"""Many devices compute what one computes; a run begun on four of them ends on one."""

import json
import os
import pathlib
import signal
import subprocess
import sys

import numpy as np
import pytest
from test_processes import SETTINGS, epochs_logged, variables, wait_for_epochs
from test_run import lines_of, summary_of
from test_scaling import QUICK

HERE = pathlib.Path(__file__).parent


def test_one_two_four_and_eight_devices_agree():
    """Tests that need a process with eight devices: those of eight_devices.py."""
    command = [sys.executable, "-m", "pytest", "-n0", "-p", "no:cacheprovider", "--tb=short"]
    child = subprocess.run(
        [*command, HERE / "eight_devices.py"],
        cwd=HERE.parent,
        env={**os.environ, "JAX_NUM_CPU_DEVICES": "8", "XLA_FLAGS": QUICK},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert child.returncode == 0, child.stdout[-6000:] + child.stderr[-2000:]


def test_batch_size_must_be_divisible_by_the_devices():
    from configs import base
    from memo_jax import planning
    from memo_jax.errors import UserError

    config = base.get_config()
    planning.check(config, num_devices=8)
    with pytest.raises(UserError, match=r"batch_size.*multiple of the 3 devices.*128"):
        planning.check(config, num_devices=3)


@pytest.mark.slow
def test_a_run_begun_by_four_devices_that_share_its_images_ends_on_one(
    launch, tmp_path, monkeypatch
):
    # At this rate rounding is hardly amplified in the many steps of the second task.
    rates = ("--config.schedule.later_epochs=8", "--config.schedule.learning_rate=0.001")
    settings = (*SETTINGS, *rates)
    shared = (*settings, "--config.memory.placement=sharded", f"--workdir={tmp_path / 'four'}")
    with monkeypatch.context() as four:
        four.setenv("JAX_NUM_CPU_DEVICES", "4")
        # Killed in the first task, and stopped in the second, which needs the exemplars.
        for epochs, stop in ((2, signal.SIGKILL), (7, signal.SIGTERM)):
            process = launch(*shared, wait=False)
            wait_for_epochs(tmp_path / "four", [process], epochs)
            process.send_signal(stop)
            out, err = process.communicate(timeout=120)
        assert "resuming inside task 1" in out and "stopped by SIGTERM inside task 2" in err
        devices = json.loads((tmp_path / "four" / "config.json").read_text())["devices"]
        assert devices == "4 x cpu"
    rest = launch(*settings, f"--workdir={tmp_path / 'four'}")
    assert rest.returncode == 0 and "resuming inside task 2" in rest.stdout, rest.stderr
    one = launch(*settings, f"--workdir={tmp_path / 'one'}")
    assert one.returncode == 0, one.stderr
    assert epochs_logged(tmp_path / "four") == epochs_logged(tmp_path / "one")
    ours, theirs = variables(tmp_path / "four", 0), variables(tmp_path / "one", 0)
    assert len(ours) > 10 and ours.keys() == theirs.keys()
    for name in ours:
        np.testing.assert_allclose(ours[name], theirs[name], atol=1e-3, err_msg=name)
    # From a loss of 4 on, the new block makes more of rounding; measured: 1e-4 after eight epochs.
    losses = [
        [row["loss"] for row in lines_of(tmp_path / folder, "epoch")] for folder in ("four", "one")
    ]
    np.testing.assert_allclose(*losses, rtol=1e-3)
    four, one = summary_of(tmp_path / "four"), summary_of(tmp_path / "one")
    assert four["memory"] == one["memory"] and four["memory_by_task"] == one["memory_by_task"]
    assert four["memory"]["exemplars"] == 201  # not a multiple of four
    for rule, accuracy in one["accuracy"].items():  # three of 355 images; measured: two
        np.testing.assert_allclose(four["accuracy"][rule], accuracy, atol=0.9)
