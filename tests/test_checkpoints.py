"""Checkpoints: what is saved comes back bit by bit, what is damaged never does."""

import logging

import jax
import numpy as np
import pytest
import tiny

from memo_jax import checkpoints, exemplars, parallel
from memo_jax.learner import Learner, digest

HISTORY = [{"task": 0, "first": 0, "stop": 2}, {"task": 1, "first": 2, "stop": 4}]


@pytest.fixture(scope="module")
def learners() -> list[Learner]:
    """Learners after one and after two tasks, with some exemplars."""
    placed = parallel.replicated(parallel.data_mesh())
    images = np.random.RandomState(0).randint(0, 256, (5, 8, 8, 3)).astype(np.uint8)
    memory = exemplars.Memory(images, np.array([0, 0, 1, 1, -1], np.int32))
    first = tiny.net().expand(None, tiny.TASKS[0], seed=3)
    both = [first, tiny.net().expand(first, tiny.TASKS[1], seed=3)]
    return [
        Learner(
            parallel.place(variables, placed),
            parallel.place(memory, placed),
            tuple(HISTORY[: count + 1]),
            {"train": 1.5 * count},
        )
        for count, variables in enumerate(both)
    ]


def restore(workdir, learner: Learner) -> Learner | None:
    return checkpoints.restore_latest(
        workdir, tiny.net(), tiny.TASKS, learner.memory, parallel.data_mesh()
    )


def test_the_newest_learner_comes_back_bit_by_bit(tmp_path, learners):
    assert restore(tmp_path, learners[0]) is None
    for learner in learners:
        checkpoints.save_task(tmp_path, learner)
        back = restore(tmp_path, learner)
        assert back.history == learner.history and back.spent == learner.spent
        assert jax.tree.structure(back.arrays()) == jax.tree.structure(learner.arrays())
        jax.tree.map(np.testing.assert_array_equal, back.arrays(), learner.arrays())


@pytest.mark.parametrize("damage", ["emptied", "changed", "unfinished", "without state"])
def test_a_damaged_checkpoint_falls_back_to_the_one_before(tmp_path, learners, damage, caplog):
    for learner in learners:
        checkpoints.save_task(tmp_path, learner)
    newest = tmp_path / "checkpoints" / "task_001"
    data = max((p for p in newest.rglob("*") if p.is_file()), key=lambda p: p.stat().st_size)
    if damage == "emptied":
        data.write_bytes(b"")
    elif damage == "changed":
        content = bytearray(data.read_bytes())
        content[len(content) // 2] ^= 1
        data.write_bytes(content)
    elif damage == "unfinished":
        newest.rename(newest.with_name("task_001.orbax-checkpoint-tmp"))
    else:
        for path in sorted(newest.rglob("*"), reverse=True):
            path.unlink() if path.is_file() else path.rmdir()
    with caplog.at_level(logging.WARNING, logger="memo_jax"):
        assert restore(tmp_path, learners[0]).tasks_done == 1
    assert ("skipped the damaged checkpoint task_001" in caplog.text) == (damage != "unfinished")


def test_a_checkpoint_of_other_shapes_is_not_loaded(tmp_path, learners, caplog):
    checkpoints.save_task(tmp_path, learners[0])
    smaller = learners[0].memory.replace(labels=learners[0].memory.labels[:4])
    with caplog.at_level(logging.WARNING, logger="memo_jax"):
        back = checkpoints.restore_latest(
            tmp_path, tiny.net(), tiny.TASKS, smaller, parallel.data_mesh()
        )
    assert back is None and "memory/images: expected ((4, 8, 8, 3)" in caplog.text


def test_rolling_checkpoints_replace_each_other_and_go_with_the_task(tmp_path, learners):
    mesh, task = parallel.data_mesh(), tiny.TASKS[1]
    folder = tmp_path / "checkpoints"
    for step in (3, 6):
        state = Step(step)
        checkpoints.save_rolling(tmp_path, task, state, {"train": float(step)})
        assert [p.name for p in folder.iterdir()] == [f"rolling_001_{step:06d}"]
    back, spent = checkpoints.restore_rolling(tmp_path, task, Step(0), mesh)
    assert int(back.step) == 6 and spent == {"train": 6.0}
    assert checkpoints.restore_rolling(tmp_path, tiny.TASKS[0], Step(0), mesh) is None
    checkpoints.save_task(tmp_path, learners[1])
    assert [p.name for p in folder.iterdir()] == ["task_001"]


def test_digest_sees_every_bit_and_every_name():
    tree = {"a": np.zeros(3, np.float32), "b": (np.ones(2, np.int32),)}
    assert digest(tree) == digest(jax.tree.map(np.copy, tree))
    flipped = {**tree, "a": np.array([0, -0.0, 0], np.float32)}
    renamed = {"a": tree["a"], "c": tree["b"]}
    reshaped = {**tree, "a": np.zeros((3, 1), np.float32)}
    assert len({digest(t) for t in (tree, flipped, renamed, reshaped)}) == 4


@jax.tree_util.register_pytree_with_keys_class
class Step:
    """A state of one leaf, standing where a TrainState does."""

    def __init__(self, step):
        self.step = np.full((), step, np.int32) if isinstance(step, int) else step

    def tree_flatten_with_keys(self):
        return [(jax.tree_util.GetAttrKey("step"), self.step)], None

    @classmethod
    def tree_unflatten(cls, _, leaves):
        return cls(*leaves)
