"""Metrics of continual learning: small functions of the history of evaluations, in percent.

A history is a list of rows, one per task learned (evaluation.by_task): `first`, `stop` (the
task's classes), `images` `[K]` (test images per class seen) and, for each prediction rule,
`correct` `[K]` and `top` (images whose class is among the min(5, K) best). The last two functions
measure a method over several sizes of memory.
"""

import itertools
from collections.abc import Callable, Sequence

import numpy as np

History = list[dict]


def _percent(correct, images) -> float:
    return 100.0 * float(np.sum(correct)) / float(np.sum(images))


def accuracy(history: History, rule: str = "head") -> list[float]:
    """A_b: accuracy over all classes seen, after each task."""
    return [_percent(row[rule]["correct"], row["images"]) for row in history]


def average_accuracy(history: History, rule: str = "head") -> float:
    """Mean of A_b over the tasks learned so far."""
    return float(np.mean(accuracy(history, rule)))


def last_accuracy(history: History, rule: str = "head") -> float:
    """A_B: accuracy after the last task learned."""
    return accuracy(history, rule)[-1]


def top5(history: History, rule: str = "head") -> list[float]:
    """Top-k accuracy after each task, k = min(5, classes seen)."""
    return [_percent(row[rule]["top"], row["images"]) for row in history]


def accuracy_matrix(history: History, rule: str = "head") -> list[list[float]]:
    """Row b: accuracy after task b on the classes of each task 0..b."""
    tasks = [(row["first"], row["stop"]) for row in history]
    return [
        [_percent(row[rule]["correct"][a:z], row["images"][a:z]) for a, z in tasks[: b + 1]]
        for b, row in enumerate(history)
    ]


def forgetting(history: History, rule: str = "head") -> float:
    """Mean over old tasks of their best accuracy before the last task minus the last (Chaudhry)."""
    matrix = accuracy_matrix(history, rule)
    old = range(len(matrix) - 1)
    drops = [max(row[t] for row in matrix[t:-1]) - matrix[-1][t] for t in old]
    return float(np.mean(drops)) if drops else 0.0


def _between(history: History, rule: str, bounds: Callable) -> list[float | None]:
    rows = []
    for row in history:
        a, z = bounds(row)
        part = slice(a, z)
        rows.append(_percent(row[rule]["correct"][part], row["images"][part]) if z > a else None)
    return rows


def new_class_accuracy(history: History, rule: str = "head") -> list[float | None]:
    """Accuracy after each task on that task's classes."""
    return _between(history, rule, lambda row: (row["first"], row["stop"]))


def old_class_accuracy(history: History, rule: str = "head") -> list[float | None]:
    """Accuracy after each task on the classes before it; None after the base task."""
    return _between(history, rule, lambda row: (0, row["first"]))


def base_class_accuracy(history: History, rule: str = "head") -> list[float | None]:
    """Accuracy after each task on the classes of the base task."""
    return _between(history, rule, lambda row: (0, history[0]["stop"]))


def later_class_accuracy(history: History, rule: str = "head") -> list[float | None]:
    """Accuracy after each task on all classes after the base task; None after the base task."""
    return _between(history, rule, lambda row: (history[0]["stop"], row["stop"]))


SUMMARIES: dict[str, Callable] = {
    "average_accuracy": average_accuracy,
    "last_accuracy": last_accuracy,
    "accuracy_matrix": accuracy_matrix,
    "top5": top5,
    "forgetting": forgetting,
    "old_class_accuracy": old_class_accuracy,
    "new_class_accuracy": new_class_accuracy,
    "base_class_accuracy": base_class_accuracy,
    "later_class_accuracy": later_class_accuracy,
}
"""What summary.json states, of the head; a metric listed here is reported."""


def area_under_curve(megabytes: Sequence[float], accuracies: Sequence[float]) -> float:
    """AUC: trapezoids under accuracy (%) over memory (MB), divided by 100 as in the paper.

    megabytes: rising. Of average accuracies it is AUC-A, of last ones AUC-L; one point has none.
    """
    corners = list(zip(megabytes, accuracies, strict=True))
    strips = [(b - a) * (low + high) / 2 for (a, low), (b, high) in itertools.pairwise(corners)]
    return sum(strips) / 100


def accuracy_per_megabyte(accuracy: float, megabytes: float) -> float:
    """APM: average accuracy (%) over memory (MB): APM-S at the first point, APM-E at the last."""
    return accuracy / megabytes
