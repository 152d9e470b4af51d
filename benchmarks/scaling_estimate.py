"""How long the whole schedule of a config would take, from what was measured of some tasks."""

import math
from collections.abc import Callable, Sequence

import numpy as np

from benchmarks.job import Job

PHASES = ("train", "compile", "exemplars", "evaluate")
"""Of a run, as in the seconds of summary.json; loading, logging and saving are not estimated."""


def estimate(
    job: Job, train_sizes: Sequence[int], test_sizes: Sequence[int], rows: Sequence[dict]
) -> dict:
    """Seconds of every task of a run by PHASES, and of all of them.

    train_sizes, test_sizes: images of each class, int `[K]`. rows: of scaling.measure, whose
    `value` is a task's number, rising; what lies between two of them is interpolated linearly.

    A task trains for its epochs of ceil(pool / batch) steps. It compiles its step, its
    predictions and its herding. For its exemplars it computes features of the pool, batch by
    batch, and herds; then it evaluates the test images of all classes seen, batch by batch.
    """
    labels = np.repeat(np.arange(len(train_sizes)), train_sizes)
    step, batch, herding = (
        _interpolated(rows, lambda row, phase=phase: _median(row, phase))
        for phase in ("train", "evaluate", "herding")
    )
    compiling = _interpolated(
        rows, lambda row: sum(found["compile_seconds"] for found in row["measured"].values())
    )
    tasks = []
    for task in job.tasks:
        number = task.index + 1
        pool, tests = len(job.pool_rows(labels, task)), int(sum(test_sizes[: task.num_seen]))
        count, epochs = math.ceil(pool / job.batch_size), job.schedule(task)["epochs"]
        seconds = {
            "train": epochs * count * step(number),
            "compile": compiling(number),
            "exemplars": 0.0,
            "evaluate": math.ceil(tests / job.eval_batch_size) * batch(number),
        }
        if job.exemplars:
            features = math.ceil(pool / job.eval_batch_size) * batch(number)
            seconds["exemplars"] = features + herding(number)
        tasks.append(
            {
                "task": number,
                "blocks": job.blocks(task),
                "epochs": epochs,
                "steps_per_epoch": count,
                "training_images": pool,
                "test_images": tests,
                "seconds": seconds,
            }
        )
    total = {phase: sum(task["seconds"][phase] for task in tasks) for phase in PHASES}
    return {
        "tasks": tasks,
        "seconds": {**total, "total": sum(total.values())},
        "measured_tasks": [row["value"] for row in rows],
    }


def _median(row: dict, phase: str) -> float:
    return row["measured"][phase]["median"] if phase in row["measured"] else 0.0


def _interpolated(rows: Sequence[dict], value: Callable[[dict], float]) -> Callable[[int], float]:
    """A value of the rows as a function of the task's number."""
    at, values = [row["value"] for row in rows], [value(row) for row in rows]
    return lambda number: float(np.interp(number, at, values))
