"""Property by property: 1, 2, 4 and 8 devices, however they share images, compute the same.

Run by test_devices.py in a process that has eight devices (JAX_NUM_CPU_DEVICES=8).
"""

import functools
import re

import jax
import numpy as np
import pytest
import test_exemplars
import test_metrics
import tiny
from jax.sharding import NamedSharding

from memo_jax import checkpoints, exemplars, parallel, streaming, training
from memo_jax.learner import Learner, digest, held
from memo_jax.order import Order
from memo_jax.protocol import Task

COUNTS = (1, 2, 4, 8)
WAYS = [(1, "replicated"), *((count, how) for count in COUNTS[1:] for how in parallel.PLACEMENTS)]
IMAGES, BATCH, SHAPE = 22, 8, "8,8,3"
TOLERANCE = 1e-5
"""Of all of a state after three steps, relative to what exceeds 1.

Measured: at most 8e-6 absolute, in sums over images."""

every_way = pytest.mark.parametrize(("count", "how"), WAYS)
divided = pytest.mark.parametrize("count", COUNTS[1:])


def sharding(count: int, how: str) -> NamedSharding:
    """So many devices, which hold images in this way."""
    return parallel.PLACEMENTS[how](parallel.data_mesh(count))


def rows_of_a_device(images: jax.Array) -> set[int]:
    return {len(shard.data) for shard in images.addressable_shards}


@pytest.fixture(scope="module", autouse=True)
def eight_devices():
    assert jax.device_count() == 8


# ---- training


@functools.cache
def trained(count: int, how: str, scan: bool = False) -> tuple[training.TrainState, str]:
    """The tiny problem's state after an epoch of three steps, and the program of a step."""
    variables, placed = tiny.variables(), sharding(count, how)
    problem, pool = tiny.problem(variables, mesh=placed.mesh), tiny.pool(IMAGES, placed)
    state = training.start(problem, variables, pool)
    driver = training.Driver(problem, state, pool, scan)
    indices = problem.order(pool).of(0)
    for first in range(0, len(indices), driver.steps_per_dispatch):
        state = driver(state, indices[first : first + driver.steps_per_dispatch])
    assert int(state.step) == 3
    return state, driver.program


def assert_close(one, other) -> None:
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=TOLERANCE, atol=TOLERANCE), one, other
    )


@pytest.mark.parametrize(
    ("count", "how"), [(4, "replicated"), *((count, "sharded") for count in COUNTS[1:])]
)
def test_training_ends_where_that_of_one_device_ends(count, how):
    assert_close(trained(count, how)[0], trained(1, "replicated")[0])


def test_devices_end_bit_by_bit_where_they_would_if_each_held_all_images():
    """Of two and of eight devices, too, but each costs a compilation more."""
    states = [trained(4, how)[0] for how in parallel.PLACEMENTS]
    assert digest(states[0]) == digest(states[1])


def test_an_epoch_in_one_dispatch_ends_where_single_steps_end():
    state, program = trained(4, "sharded", scan=True)
    assert_close(state, trained(4, "sharded")[0])
    assert_holds_its_part_only(program, 4)


def assert_holds_its_part_only(program: str, count: int) -> None:
    """No device has more images anywhere in a program than its part, or a batch."""
    part = -(-IMAGES // count)
    found = {int(rows) for rows in re.findall(rf"u8\[(\d+),{SHAPE}\]", program)}
    assert part in found and max(found) <= max(part, BATCH)
    assert "reduce-scatter" in program or "all-reduce" in program


@divided
def test_no_device_ever_gathers_the_pool(count):
    assert_holds_its_part_only(trained(count, "sharded")[1], count)
    assert f"u8[{IMAGES},{SHAPE}]" in trained(4, "replicated")[1]


def test_a_batch_of_the_host_is_divided_among_the_devices():
    images = np.random.RandomState(0).randint(0, 256, (13, 8, 8, 3)).astype(np.uint8)
    order, found = Order((1,), 13, BATCH), []
    for count in COUNTS:
        placed = parallel.sharded(parallel.data_mesh(count))
        with streaming.feed(images, 0, order, range(3), None, placed) as batches:
            some = list(batches)
        assert {rows for batch in some for rows in rows_of_a_device(batch)} == {BATCH // count}
        found.append(np.stack([np.asarray(batch) for batch in some]))
    assert found[0].any()
    for batches in found:
        np.testing.assert_array_equal(batches, found[0])


# ---- exemplars


@every_way
def test_picks_are_those_of_the_definition_for_any_number_of_classes(count, how):
    """Of five new classes and then one, which no number of devices divides."""
    placed, stream = sharding(count, how), test_exemplars.Stream(test_exemplars.COUNTS)
    memory = exemplars.Memory.empty(13, test_exemplars.IMAGE, placed)
    for task, slots in ((Task(0, 0, 5), [2, 2, 2, 2, 1]), (Task(1, 5, 6), [2, 2, 2, 2, 1, 2])):
        memory, _, pool = test_exemplars.learn(stream, memory, task, sharding=placed)
        expected = {c: stream.picks(c, m, "herding") for c, m in enumerate(slots)}
        assert test_exemplars.remembered(memory) == expected
        parts = count if how == "sharded" else 1
        assert rows_of_a_device(memory.images) == {-(-13 // parts)}
        assert rows_of_a_device(pool.images) == {-(-pool.size // parts)}


@pytest.mark.parametrize("selection", exemplars.SELECTIONS)
def test_picks_of_given_features_do_not_depend_on_the_devices(selection):
    stream, found = test_exemplars.Stream([30] * 7), []
    for count in COUNTS:
        placed = sharding(count, "sharded")
        memory = exemplars.Memory.empty(150, test_exemplars.IMAGE, placed)
        task = Task(0, 0, 7)
        memory, _, _ = test_exemplars.learn(stream, memory, task, selection, sharding=placed)
        found.append(test_exemplars.remembered(memory))
    assert len(found[0]) == 7 and {len(picks) for picks in found[0].values()} == {21}
    assert all(picks == found[0] for picks in found)


@every_way
def test_what_is_read_are_the_rows_asked_for_piece_by_piece(count, how, monkeypatch):
    monkeypatch.setattr(parallel, "PIECE", 5 * 3 * 4)  # five rows
    array = np.random.RandomState(0).randint(0, 256, (21, 3)).astype(np.uint32)
    placed = parallel.place_rows(array, sharding(count, how))
    for rows in ([], [20], np.arange(21), np.random.RandomState(1).randint(0, 21, 33)):
        rows = np.asarray(rows, int)
        np.testing.assert_array_equal(parallel.read(placed, rows), array[rows])


# ---- evaluation


@every_way
def test_every_test_image_counts_once(count, how):
    for batch, seen in ((7, 3), (50, 8)):
        test_metrics.check_counts(batch, seen, sharding(count, how))


# ---- checkpoints


def learner(placed: NamedSharding) -> Learner:
    """A learner after one task, with a memory of 13 slots of which 11 are filled."""
    images = np.random.RandomState(0).randint(0, 256, (13, 8, 8, 3)).astype(np.uint8)
    memory = exemplars.Memory.of(images, np.array([0] * 6 + [1] * 5 + [-1] * 2), placed)
    variables = tiny.net().expand(None, tiny.TASKS[0], seed=3)
    variables = parallel.place(variables, parallel.replicated(placed.mesh))
    return Learner(variables, memory, ({"task": 0},), {"train": 1.0})


@pytest.mark.parametrize("saver", [(1, "replicated"), (4, "sharded")])
def test_a_checkpoint_is_read_by_any_devices_whoever_wrote_it(saver, tmp_path):
    saved = learner(sharding(*saver))
    assert saved.digest == learner(sharding(8, "replicated")).digest
    checkpoints.save_task(tmp_path, saved)
    for count, how in ((1, "sharded"), (2, "replicated"), (4, "replicated"), (8, "sharded")):
        placed = sharding(count, how)
        empty = exemplars.Memory.empty(13, (8, 8, 3), placed)
        back = checkpoints.restore_latest(tmp_path, tiny.net(), tiny.TASKS, empty, placed.mesh)
        assert back.digest == saved.digest and back.memory.filled == 11
        assert held(back.variables, back.memory) == held(saved.variables, saved.memory)
        assert back.memory.images.sharding == placed
        assert rows_of_a_device(back.memory.images) == rows_of_a_device(empty.images)


def test_a_rolling_checkpoint_of_eight_devices_is_read_by_one(tmp_path):
    state, task, one = trained(8, "sharded")[0], tiny.TASKS[1], parallel.data_mesh(1)
    checkpoints.save_rolling(tmp_path, task, state, {})
    back, _ = checkpoints.restore_rolling(tmp_path, task, state, one)
    assert digest(back) == digest(state)
    assert {leaf.sharding.mesh for leaf in jax.tree.leaves(back)} == {one}
