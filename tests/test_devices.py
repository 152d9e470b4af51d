"""Two devices compute what one computes, and read each other's checkpoints."""

import pathlib
import subprocess
import sys

import jax
import numpy as np
import tiny

from memo_jax import checkpoints, parallel, training
from memo_jax.protocol import Task

HERE = pathlib.Path(__file__).parent
IN_THE_CHILD = """
import sys
import jax
jax.config.update("jax_num_cpu_devices", 2)
sys.path[:0] = sys.argv[1:3]
import pathlib
import test_devices
test_devices.train_and_save(pathlib.Path(sys.argv[3]))
"""


def train_and_save(workdir: pathlib.Path) -> training.TrainState:
    """One epoch of the tiny problem, its state saved as a rolling checkpoint."""
    variables, pool, states = tiny.variables(), tiny.pool(), []
    problem = tiny.problem(variables)
    hooks = training.Hooks(
        interrupted=lambda: bool(states),
        epoch=lambda number, means, state, report: states.append(state),
        save=lambda state, report: checkpoints.save_rolling(workdir, Task(1, 2, 4), state, {}),
    )
    try:
        training.fit(problem, training.start(problem, variables, pool), pool, hooks, scan=False)
    except training.Stopped:
        return states[0]
    raise AssertionError("was not interrupted")


def test_two_devices_equal_one_and_their_checkpoint_reads_on_one(tmp_path):
    assert jax.device_count() == 1
    ours = train_and_save(tmp_path / "one")
    child = subprocess.run(
        [sys.executable, "-c", IN_THE_CHILD, str(HERE), str(HERE.parent), str(tmp_path / "two")],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert child.returncode == 0, child.stderr
    template = jax.tree.map(np.asarray, ours)
    theirs, _ = checkpoints.restore_rolling(
        tmp_path / "two", Task(1, 2, 4), template, parallel.data_mesh()
    )
    assert int(theirs.step) == int(ours.step) == 3
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), theirs, ours)


def test_batch_size_must_be_divisible_by_the_devices():
    import pytest

    from configs import base
    from memo_jax import planning
    from memo_jax.errors import UserError

    config = base.get_config()
    planning.check(config, num_devices=8)
    with pytest.raises(UserError, match=r"batch_size.*multiple of the 3 devices.*128"):
        planning.check(config, num_devices=3)
