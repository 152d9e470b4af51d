"""Exemplars: the published picks and class means, and a memory carried through tasks."""

import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from memo_jax import budget, exemplars, parallel
from memo_jax.protocol import Task

GOLDEN = pathlib.Path(__file__).parent / "golden"
SELECT = {"herding": exemplars.herd, "closest": exemplars.nearest}
SHARDING = parallel.replicated(parallel.data_mesh())
IMAGE = (2, 2, 3)


@pytest.fixture(scope="module")
def herding() -> dict:
    return dict(np.load(GOLDEN / "herding.npz"))


@pytest.fixture(scope="module")
def nme() -> dict:
    return dict(np.load(GOLDEN / "nme.npz"))


# ---- selection


def case_of(herding: dict, case: int) -> tuple[np.ndarray, int]:
    """Features and number of picks; in case 3 the share exceeds the seven images there are."""
    features = herding[f"{case}/features"]
    return features, min(len(features), int(herding[f"{case}/m"]))


@pytest.mark.parametrize("rule", SELECT)
@pytest.mark.parametrize("case", range(5))
def test_picks_are_the_published_ones_in_order(case, rule, herding):
    features, m = case_of(herding, case)
    picks = SELECT[rule](jnp.asarray(features), m)
    assert picks.tolist() == herding[f"{case}/{rule}"].tolist()


@pytest.mark.parametrize("rule", SELECT)
@pytest.mark.parametrize("case", [0, 3])
def test_rows_that_only_fill_up_change_no_pick(case, rule, herding):
    features, m = case_of(herding, case)
    # The filling lies between the real rows and would be picked at once.
    where = np.sort(np.random.RandomState(0).permutation(2 * len(features))[: len(features)])
    mean = features.mean(axis=0)
    padded = np.tile(mean, (2 * len(features), 1))
    padded[where] = features
    valid = np.isin(np.arange(len(padded)), where)
    picks = np.asarray(SELECT[rule](jnp.asarray(padded), m, jnp.asarray(valid)))
    assert np.searchsorted(where, picks).tolist() == herding[f"{case}/{rule}"].tolist()
    assert valid[picks].all()


def test_herding_looks_at_directions_and_nearest_at_distances():
    features = np.array([[1, 0], [0, 1], [30, 29.9], [4, 0.5]], np.float32)
    assert exemplars.herd(jnp.asarray(features), 1).tolist() == [2]
    assert exemplars.nearest(jnp.asarray(features), 1).tolist() == [3]


def greedy(features: np.ndarray, m: int) -> list[int]:
    """Herding from its definition: the pick that brings the mean of all picks closest."""
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    picks = []
    for _ in range(m):
        others = [i for i in range(len(unit)) if i not in picks]
        gaps = [np.linalg.norm(unit.mean(0) - unit[[*picks, i]].mean(0)) for i in others]
        picks.append(others[int(np.argmin(gaps))])
    return picks


# ---- prediction by the nearest mean


def test_class_means_are_the_published_ones(nme):
    classes, each, width = nme["exemplar_features"].shape
    features = nme["exemplar_features"].reshape(-1, width)
    labels = np.repeat(np.arange(classes), each)
    means = exemplars.class_means(jnp.asarray(features), jnp.asarray(labels), classes)
    np.testing.assert_allclose(means, nme["means"], atol=1e-6)


def test_empty_slots_count_in_no_class_mean(nme):
    classes, each, width = nme["exemplar_features"].shape
    features = nme["exemplar_features"].reshape(-1, width)
    labels = np.repeat(np.arange(classes), each)
    order = np.random.RandomState(0).permutation(len(labels) + 30)
    features = np.concatenate([features, 9 * np.ones((30, width), np.float32)])[order]
    labels = np.concatenate([labels, np.full(30, exemplars.EMPTY)])[order]
    means = exemplars.class_means(jnp.asarray(features), jnp.asarray(labels), classes)
    np.testing.assert_allclose(means, nme["means"], atol=1e-6)


def test_the_five_nearest_classes_are_the_published_ones(nme):
    scores = exemplars.nearest_mean_scores(jnp.asarray(nme["queries"]), jnp.asarray(nme["means"]))
    nearest = np.argsort(-np.asarray(scores), axis=1)[:, :5]
    np.testing.assert_array_equal(nearest, nme["top5"])


def test_scores_are_minus_the_squared_distances(nme):
    queries, means = nme["queries"].astype(np.float64), nme["means"].astype(np.float64)
    unit = queries / np.linalg.norm(queries, axis=1, keepdims=True)
    expected = -((unit[:, None] - means[None]) ** 2).sum(axis=2)
    scores = exemplars.nearest_mean_scores(jnp.asarray(nme["queries"]), jnp.asarray(nme["means"]))
    np.testing.assert_allclose(scores, expected, atol=1e-5)


# ---- shares


@pytest.mark.parametrize(
    ("size", "classes", "equal", "fill"),
    [
        (10, 5, [2] * 5, [2] * 5),
        (11, 4, [2] * 4, [3, 3, 3, 2]),
        (7, 3, [2] * 3, [3, 2, 2]),
        (2000, 30, [66] * 30, [67] * 20 + [66] * 10),
        (7431, 10, [743] * 10, [744] + [743] * 9),
    ],
)
def test_shares(size, classes, equal, fill):
    assert budget.shares(size, classes, "equal").tolist() == equal
    assert budget.shares(size, classes, "fill").tolist() == fill


class Stream:
    """Images whose every pixel is their number (from 1 on), and features by that number."""

    def __init__(self, counts: list[int]):
        self.labels = np.repeat(np.arange(len(counts)), counts)
        numbers = 1 + np.arange(len(self.labels))
        self.images = np.tile(numbers.reshape(-1, 1, 1, 1), (1, *IMAGE)).astype(np.uint8)
        draws = np.random.RandomState(0)
        self.table = draws.rand(1 + len(numbers), 4).astype(np.float32)

    def of(self, task: Task) -> tuple[np.ndarray, np.ndarray]:
        new = (self.labels >= task.first) & (self.labels < task.stop)
        return self.images[new], self.labels[new]

    def numbers(self, c: int) -> np.ndarray:
        return 1 + np.flatnonzero(self.labels == c)

    def features(self, images) -> np.ndarray:
        return self.table[np.asarray(images)[:, 0, 0, 0]]

    def picks(self, c: int, m: int, selection: str) -> list[int]:
        """The numbers of a class's first m picks, by brute force."""
        numbers = self.numbers(c)
        features = self.table[numbers].astype(np.float64)
        if selection == "herding":
            return numbers[greedy(features, min(m, len(numbers)))].tolist()
        gaps = np.linalg.norm(features - features.mean(0), axis=1)
        return numbers[np.argsort(gaps)[:m]].tolist()


def remembered(memory: exemplars.Memory) -> dict[int, list[int]]:
    """class -> numbers of its images in order; checks what holds for every memory."""
    images, labels = np.asarray(memory.slots), np.asarray(memory.labels)
    assert images.dtype == np.uint8 and labels.dtype == np.int32
    filled = labels != exemplars.EMPTY
    assert (images[~filled] == 0).all() and (images[filled] != 0).all()
    assert (labels[~filled] == -1).all()
    assert (images == images[:, :1, :1, :1]).all(), "an image is not one of the stream"
    count = filled.sum()
    assert filled[:count].all() and (np.diff(labels[:count]) >= 0).all()
    return {int(c): images[labels == c, 0, 0, 0].tolist() for c in np.unique(labels[filled])}


def learn(stream, memory, task, selection="herding", allocation="equal", sharding=SHARDING):
    """One task: (memory after it, features of its slots, what it could learn from)."""
    pool = exemplars.join(memory, *stream.of(task), sharding)
    images = parallel.read(pool.images, np.arange(pool.size))
    features = jnp.asarray(stream.features(images))
    size = len(memory.labels)
    return *exemplars.refresh(size, pool, features, task, selection, allocation, sharding), pool


COUNTS = [9, 8, 3, 9, 1, 10]
TASKS = (Task(0, 0, 2), Task(1, 2, 4), Task(2, 4, 6))
# Slots of each class after each task, for a memory of 13: the class's share or all its images.
EXPECTED = {
    "equal": ([6, 6], [3, 3, 3, 3], [2, 2, 2, 2, 1, 2]),
    "fill": ([7, 6], [4, 3, 3, 3], [3, 2, 2, 2, 1, 2]),
}


@pytest.mark.parametrize(
    ("selection", "allocation"), [("herding", "equal"), ("herding", "fill"), ("nearest", "fill")]
)
def test_old_classes_keep_their_first_picks_and_new_ones_are_picked(selection, allocation):
    stream = Stream(COUNTS)
    memory = exemplars.Memory.empty(13, IMAGE, SHARDING)
    shapes = jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), memory)
    assert remembered(memory) == {}
    for task, slots in zip(TASKS, EXPECTED[allocation]):
        memory, features, _ = learn(stream, memory, task, selection, allocation)
        expected = {c: stream.picks(c, m, selection) for c, m in enumerate(slots)}
        assert remembered(memory) == expected
        assert jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), memory) == shapes
        filled = np.asarray(memory.labels) != exemplars.EMPTY
        assert features.shape == (13, 4)
        own = stream.features(memory.images)
        np.testing.assert_array_equal(np.asarray(features)[filled], own[filled])


@pytest.mark.parametrize("selection", ["herding", "nearest"])
def test_a_class_smaller_than_its_share_keeps_all_it_has(selection):
    stream = Stream([3, 12, 1, 5])
    memory = exemplars.Memory.empty(20, IMAGE, SHARDING)
    memory, _, _ = learn(stream, memory, Task(0, 0, 2), selection)
    expected = {0: stream.picks(0, 10, selection), 1: stream.picks(1, 10, selection)}
    assert remembered(memory) == expected
    assert sorted(expected[0]) == stream.numbers(0).tolist()
    memory, _, _ = learn(stream, memory, Task(1, 2, 4), selection)
    slots = {0: 3, 1: 5, 2: 1, 3: 5}
    assert remembered(memory) == {c: stream.picks(c, m, selection) for c, m in slots.items()}


def test_join_puts_exemplars_in_the_order_of_the_memory_before_new_images_by_class():
    stream = Stream(COUNTS)
    memory = exemplars.Memory.empty(13, IMAGE, SHARDING)
    memory, _, pool = learn(stream, memory, TASKS[0])
    assert np.asarray(pool.images)[:, 0, 0, 0].tolist() == [*stream.numbers(0), *stream.numbers(1)]
    old = remembered(memory)
    pool = exemplars.join(memory, *stream.of(TASKS[1]), SHARDING)
    expected = [(0, n) for n in old[0]] + [(1, n) for n in old[1]]
    expected += [(c, n) for c in (2, 3) for n in stream.numbers(c)]
    images = np.asarray(pool.images)
    assert list(zip(pool.labels.tolist(), images[:, 0, 0, 0].tolist())) == expected
    assert pool.size == 12 + 12 and images.dtype == np.uint8


def test_a_base_task_without_exemplars_learns_from_its_own_images_only():
    stream = Stream(COUNTS)
    memory = exemplars.Memory.empty(5, IMAGE, SHARDING)
    images, labels = stream.of(TASKS[0])
    pool = exemplars.join(memory, images, labels, SHARDING)
    np.testing.assert_array_equal(pool.images, images)
    np.testing.assert_array_equal(pool.labels, labels)
