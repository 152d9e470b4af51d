"""The stream of tasks: published class orders, and which classes come when."""

import json
import pathlib

import numpy as np
import pytest

from memo_jax import protocol
from memo_jax.errors import UserError

ORDERS = json.loads((pathlib.Path(__file__).parent / "golden/class_orders.json").read_text())

# (classes, base, increment): the settings of the paper and the sizes of their tasks.
SETTINGS = {
    (100, 0, 5): [5] * 20,
    (100, 0, 10): [10] * 10,
    (100, 0, 20): [20] * 5,
    (100, 50, 5): [50] + [5] * 10,
    (100, 50, 10): [50] + [10] * 5,
    (100, 80, 5): [80] + [5] * 4,
    (100, 80, 10): [80, 10, 10],
    (1000, 0, 100): [100] * 10,
    (1000, 500, 100): [500] + [100] * 5,
}
UNEVEN = {
    (10, 0, 3): [3, 3, 3, 1],
    (10, 4, 4): [4, 4, 2],
    (100, 50, 20): [50, 20, 20, 10],
    (7, 5, 10): [5, 2],
}
EDGES = {
    (10, 10, 1): [10],
    (10, 0, 10): [10],
    (3, 1, 1): [1, 1, 1],
}


@pytest.mark.parametrize("name", [name for name in ORDERS if "/" in name])
def test_class_order_is_the_published_one(name):
    num_classes, seed = map(int, name.split("/"))
    assert protocol.class_order(num_classes, seed).tolist() == ORDERS[name]


def test_class_order_leaves_the_global_generator_alone():
    np.random.seed(7)
    undisturbed = np.random.rand()
    np.random.seed(7)
    protocol.class_order(100, 1993)
    assert np.random.rand() == undisturbed


@pytest.mark.parametrize(("arguments", "sizes"), (SETTINGS | UNEVEN | EDGES).items(), ids=str)
def test_split_gives_tasks_of_these_sizes(arguments, sizes):
    tasks = protocol.split(*arguments)
    assert [task.num_new for task in tasks] == sizes
    assert [task.index for task in tasks] == list(range(len(sizes)))


@pytest.mark.parametrize("arguments", [*SETTINGS, *UNEVEN, *EDGES], ids=str)
def test_every_class_comes_in_exactly_one_task_and_in_order(arguments):
    classes = [c for task in protocol.split(*arguments) for c in range(task.first, task.stop)]
    assert classes == list(range(arguments[0]))


@pytest.mark.parametrize(
    ("base", "increment", "count"), [(0, 10, 10), (50, 5, 11), (50, 10, 6), (0, 5, 20)]
)
def test_number_of_tasks_of_the_paper(base, increment, count):
    assert len(protocol.split(100, base, increment)) == count


def test_a_task_counts_its_old_new_and_seen_classes():
    base, later = protocol.split(10, 6, 3)[:2]
    assert (base.num_old, base.num_new, base.num_seen, base.is_base) == (0, 6, 6, True)
    assert (later.num_old, later.num_new, later.num_seen, later.is_base) == (6, 3, 9, False)


@pytest.mark.parametrize(
    ("base", "increment", "told"),
    [
        (101, 10, "first task has 101 classes .* only 100; lower .*protocol.base"),
        (0, 101, "first task has 101 classes .* only 100; lower .*protocol.increment"),
        (50, 0, "increment >= 1, found base 50 and increment 0"),
        (0, -1, "increment >= 1, found base 0 and increment -1"),
        (-1, 10, "base >= 0 .*found base -1"),
    ],
)
def test_impossible_sizes_are_told(base, increment, told):
    with pytest.raises(UserError, match=told):
        protocol.split(100, base, increment)


def test_setting_name_is_the_short_one_of_the_field():
    assert protocol.setting_name(50, 10) == "b50i10"
