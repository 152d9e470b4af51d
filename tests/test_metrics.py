"""Metrics by a worked example, and the counts they are taken from by brute force."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from memo_jax import evaluation, exemplars, metrics, network, paper, parallel
from memo_jax.protocol import Task


def row(first: int, stop: int, images, head, head_top, nearest_mean, nearest_mean_top) -> dict:
    return {
        "first": first,
        "stop": stop,
        "images": images,
        "head": {"correct": head, "top": head_top},
        "nearest_mean": {"correct": nearest_mean, "top": nearest_mean_top},
    }


# Three tasks of 2, 1 and 3 classes with unequal numbers of test images.
HISTORY = [
    row(0, 2, [10, 30], [5, 18], 40, [10, 20], 40),
    row(2, 3, [10, 30, 20], [8, 24, 16], 60, [4, 16, 10], 60),
    row(3, 6, [10, 30, 20, 10, 20, 10], [4, 12, 14, 9, 18, 3], 90, [2, 8, 5, 10, 20, 10], 95),
]

# Worked by hand from the counts above: (of the head, of the nearest mean).
WORKED = {
    # 23/40, 48/60, 60/100; 30/40, 30/60, 55/100
    "accuracy": ([57.5, 80.0, 60.0], [75.0, 50.0, 55.0]),
    "average_accuracy": (197.5 / 3, 60.0),
    "last_accuracy": (60.0, 55.0),
    # 40/40, 60/60 (all three classes are among the best three), 90/100; 95/100
    "top5": ([100.0, 100.0, 90.0], [100.0, 100.0, 95.0]),
    # After the last task 16/40, 14/20, 30/40; 10/40, 5/20, 40/40
    "accuracy_matrix": (
        [[57.5], [80.0, 80.0], [40.0, 70.0, 75.0]],
        [[75.0], [50.0, 50.0], [25.0, 25.0, 100.0]],
    ),
    # Best before the last task minus last: (80 - 40 + 80 - 70) / 2; (75 - 25 + 50 - 25) / 2
    "forgetting": (25.0, 37.5),
    # 32/40, 30/60; 20/40, 15/60
    "old_class_accuracy": ([None, 80.0, 50.0], [None, 50.0, 25.0]),
    "new_class_accuracy": ([57.5, 80.0, 75.0], [75.0, 50.0, 100.0]),
    "base_class_accuracy": ([57.5, 80.0, 40.0], [75.0, 50.0, 25.0]),
    # 16/20, 44/60; 10/20, 45/60
    "later_class_accuracy": ([None, 80.0, 220 / 3], [None, 50.0, 75.0]),
}


def flat(value) -> list:
    return [x for part in value for x in flat(part)] if isinstance(value, list) else [value]


def assert_equal(value, expected) -> None:
    """Equal nesting and, to rounding, equal numbers."""
    assert jax.tree.structure(value) == jax.tree.structure(expected)
    assert flat(value) == [x if x is None else pytest.approx(x, rel=1e-12) for x in flat(expected)]


@pytest.mark.parametrize("name", WORKED)
def test_worked_example(name):
    function = getattr(metrics, name)
    head, nearest_mean = WORKED[name]
    assert_equal(function(HISTORY), head)
    assert_equal(function(HISTORY, "head"), head)
    assert_equal(function(HISTORY, "nearest_mean"), nearest_mean)


def test_every_summary_has_a_worked_example():
    assert set(metrics.SUMMARIES) - set(WORKED) == set()
    for name, function in metrics.SUMMARIES.items():
        assert function is getattr(metrics, name)


def test_nothing_is_forgotten_and_nothing_is_old_after_the_base_task():
    history = HISTORY[:1]
    assert metrics.forgetting(history) == 0.0
    assert metrics.accuracy_matrix(history) == [[57.5]]
    assert metrics.old_class_accuracy(history) == [None]
    assert metrics.later_class_accuracy(history) == [None]
    assert metrics.average_accuracy(history) == metrics.last_accuracy(history) == 57.5


def test_a_task_that_improved_counts_as_negative_forgetting():
    improved = [HISTORY[0], row(2, 3, [10, 30, 20], [10, 30, 20], 60, [10, 30, 20], 60)]
    assert metrics.forgetting(improved) == 57.5 - 100


def test_area_is_of_trapezoids_between_unevenly_spaced_points():
    # 10 MB wide at a mean height of 50 %, then 20 MB at 70 %.
    assert metrics.area_under_curve([10, 20, 40], [40, 60, 80]) == pytest.approx(5 + 14)
    assert metrics.area_under_curve([5], [70]) == 0
    with pytest.raises(ValueError):
        metrics.area_under_curve([10, 20], [40])


def test_the_papers_measures_agree_with_one_another():
    """The paper prints no accuracy at a curve's points, so its areas cannot be computed again.

    But an area divided by its width is a mean of accuracies, which rise from APM-S times the first
    memory to APM-E times the last: that it lies between them tells the unit, MB and percent / 100.
    """
    for setting in ("cifar100/b0i10", "imagenet100/b50i5"):
        points = paper.curve_points(setting)
        for printed in paper.measures(setting).values():
            # In three digits 0.058 may be 0.0589.
            first, last = printed["apm_s"] * points[0], printed["apm_e"] * points[-1] * 1.02
            rectangle = metrics.area_under_curve([points[0], points[-1]], [1, 1])
            assert first < printed["auc_a"] / rectangle < last
            assert printed["auc_l"] < printed["auc_a"]


def test_accuracy_per_megabyte_of_the_papers_last_point():
    """At 23.5 MB the accuracies are printed: two of five entries are these, cut after two digits.

    iCaRL, DER and MEMO are below, by up to 0.07: their averages there must have been others.
    """
    printed = paper.measures("cifar100/b0i10")
    ours = {
        method: metrics.accuracy_per_megabyte(entry.average, 23.5)
        for method, entry in paper.accuracies("cifar100/b0i10").items()
    }
    exact = {m for m, value in ours.items() if int(value * 100) / 100 == printed[m]["apm_e"]}
    assert exact == {"replay", "wa"}
    assert all(0 <= ours[m] - printed[m]["apm_e"] < 0.08 for m in ours)


def brute_force(scores: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Confusion `[R, K, K]` and top hits `[R]`, example by example."""
    rules, examples, classes = scores.shape
    confusion, top = np.zeros((rules, classes, classes), int), np.zeros(rules, int)
    for rule in range(rules):
        for example in range(examples):
            ranking = sorted(range(classes), key=lambda k: -scores[rule, example, k])
            confusion[rule, labels[example], ranking[0]] += 1
            top[rule] += labels[example] in ranking[:5]
    return confusion, top


def test_a_history_row_states_sums_of_each_class_and_rule():
    confusion = np.array([[[3, 1, 0], [0, 2, 0], [1, 1, 2]], [[4, 0, 0], [1, 0, 1], [0, 3, 1]]])
    counts = evaluation.Counts(confusion, np.array([10, 9]))
    assert evaluation.by_task(counts, Task(1, 2, 3)) == {
        "task": 1,
        "first": 2,
        "stop": 3,
        "images": [4, 2, 4],
        "head": {"correct": [3, 2, 2], "top": 10},
        "nearest_mean": {"correct": [4, 0, 1], "top": 9},
    }


class PixelNetwork:
    """Stands for a network: an image's features are its pixels, logits products of them."""

    image_shape = (1, 4, 1)

    def apply(self, variables, images):
        features = images[:, 0, :, 0]
        return network.Outputs(features, features @ variables, None), {}


@pytest.mark.parametrize("batch", [4, 7, 50])
@pytest.mark.parametrize("seen", [1, 3, 5, 8])
def test_every_test_image_of_the_classes_seen_counts_once(batch, seen):
    """Few and many classes; batches that do and do not divide the number of images."""
    check_counts(batch, seen, parallel.replicated(parallel.data_mesh()))


def check_counts(batch: int, seen: int, sharding: jax.sharding.NamedSharding) -> None:
    """Counts of 61 images, which lie as `sharding` says, against brute force."""
    rng = np.random.RandomState(seen)
    images = rng.randint(0, 256, (61, 1, 4, 1)).astype(np.uint8)
    labels = rng.randint(0, 10, 61)
    weights, means = rng.randn(4, seen).astype(np.float32), rng.rand(seen, 4).astype(np.float32)
    mesh = sharding.mesh
    variables = parallel.place(weights, parallel.replicated(mesh))
    predict = evaluation.Predictor(
        PixelNetwork(), lambda x: x.astype(jnp.float32), variables, batch, mesh
    )
    task = Task(1, seen - 1, seen)
    placed = parallel.place_rows(images, sharding)
    counts = evaluation.count(predict, variables, means, placed, labels, task)

    real = labels < seen
    features = images[real, 0, :, 0].astype(np.float64)
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    distances = ((unit[:, None] - means[None]) ** 2).sum(axis=2)
    confusion, top = brute_force(np.stack([features @ weights, -distances]), labels[real])
    np.testing.assert_array_equal(counts.confusion, confusion)
    np.testing.assert_array_equal(counts.top, top)
    assert (top == real.sum()).all() == (seen <= 5)
    assert counts.confusion[0].sum() == real.sum() < 61


@pytest.mark.parametrize("resident", [0, 2, 4, 9])
def test_features_of_a_pool_come_in_its_order_wherever_its_images_are(resident):
    images = np.random.RandomState(0).randint(0, 256, (9, 1, 4, 1)).astype(np.uint8)
    variables, mesh = jnp.zeros((4, 1)), parallel.data_mesh()
    predict = evaluation.Predictor(
        PixelNetwork(), lambda x: x.astype(jnp.float32), variables, 4, mesh
    )
    rest = images[resident:] if resident < 9 else None
    pool = exemplars.Pool(jnp.asarray(images[: max(resident, 1)]), jnp.zeros(9, jnp.int32), rest)
    features = predict.features(variables, pool)
    np.testing.assert_array_equal(features, images[:, 0, :, 0])
