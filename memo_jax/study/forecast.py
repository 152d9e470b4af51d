"""How long runs will take, from what finished runs took. Where nothing was measured, no guess."""

import pathlib
from collections.abc import Sequence

import numpy as np

from memo_jax import budget, parallel, results
from memo_jax.planning import Plan
from memo_jax.study.outline import Entry

RUNS = pathlib.Path("runs")
"""Where experiments and studies lie that were given no other place."""


def measured(folder: pathlib.Path) -> list[dict]:
    """Summaries of the finished runs of the study in `folder`, of those beside it and in runs/.

    Only those that were computed by the same devices as are present now.
    """
    places = [(folder.parent, "*"), (folder.parent, "*/*"), (RUNS, "*/*")]
    paths = {
        path.absolute() for place, runs in places for path in place.glob(f"{runs}/summary.json")
    }
    summaries = [results.finished(path.parent) for path in sorted(paths)]
    here = parallel.describe()
    return [s for s in summaries if s and s["devices"] == here and s["images_per_second"]]


def seconds(entry: Entry, borrows: bool, summaries: Sequence[dict]) -> float | None:
    """The time that is left to a run, or None if no comparable run has been measured.

    Images to train on / images per second, and per task the time that is not training. Comparable
    are runs of the same method, dataset and backbone, of the same setting where there are any.
    borrows: whether it starts from another run's base task.
    """
    if entry.plan is None or entry.class_size is None:
        return None
    config = entry.run.config
    wanted = config.method.name, config.dataset.name, config.backbone.name
    like = [s for s in summaries if (s["method"], s["dataset"], s["backbone"]) == wanted]
    same = [s for s in like if f"{s['dataset']}/{s['setting']}" == entry.run.setting]
    if not like:
        return None
    speed = np.mean([s["images_per_second"] for s in same or like])
    beside = np.mean([_beside_training(s) for s in same or like])
    tasks_left = len(entry.plan.tasks) - entry.tasks_done
    first = max(entry.tasks_done, 1 if borrows else 0)
    return float(images(entry.plan, entry.class_size, first) / speed + beside * tasks_left)


def _beside_training(summary: dict) -> float:
    """Seconds per task of compilation, herding, evaluation and all else."""
    spent = summary["seconds"]
    return (spent["total"] - spent["train"]) / summary["num_tasks"]


def images(plan: Plan, class_size: float, first: int = 0) -> float:
    """Images trained on from the task `first` to the end, each as often as it is seen.

    class_size: images of a class, taken as equal for all.
    """
    total = 0.0
    for task in plan.tasks[first:]:
        pool = class_size * task.num_new
        if not task.is_base:
            slots = budget.shares(plan.ledger.exemplars, task.num_old, plan.allocation)
            pool += np.minimum(slots, class_size).sum()
        total += plan.schedule(task).epochs * pool
    return total


def words(duration: float) -> str:
    """A duration for people: `4 s`, `12 min`, `3 h 05 min`."""
    minutes = round(duration / 60)
    if duration < 90:
        return f"{duration:.0f} s"
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02d} min"
