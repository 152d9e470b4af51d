"""Run folders for tests of reports, in which nobody has learned anything."""

import csv
import json
import pathlib
import shutil
import statistics

import numpy as np

from configs import digits_b0i2
from memo_jax import datasets, evaluation, exemplars, paper, parallel, planning, results, run_folder
from memo_jax.__main__ import main
from memo_jax.learner import Learner
from memo_jax.report import compare, files, load


def make_run(folder: pathlib.Path) -> pathlib.Path:
    """A run's folder as the program writes it, of predictions drawn at random.

    MEMO with digits, the first two of three tasks.
    """
    config = digits_b0i2.get_config()
    config.protocol.increment, config.protocol.stop_after = 4, 2
    config.schedule.base_epochs = config.schedule.later_epochs = 1
    config.schedule.base_milestones = config.schedule.later_milestones = ()
    plan = planning.make(config, datasets.load("digits", "", "auto"))
    folder.mkdir(parents=True)
    run_folder.describe(folder, config, planning.resolved(config, plan))
    draws, history = np.random.RandomState(0), []
    for task in plan.tasks:
        shape = (2, task.num_seen, task.num_seen)
        confusion = draws.randint(1, 9, shape) + 40 * np.eye(task.num_seen, dtype=int)
        confusion[1] = np.diag(confusion[0].sum(axis=1))  # by nearest mean all are right
        counts = evaluation.Counts(confusion, confusion.sum(axis=(1, 2)))
        history.append({**evaluation.by_task(counts, task), "memory": {}})
        results.save_confusion(folder, counts, task)
    memory = exemplars.Memory.empty(4, (8, 8, 1), parallel.replicated(parallel.data_mesh()))
    spent = {"train": 4.0, "compile": 3.0, "evaluate": 2.0, "exemplars": 1.0, "other": 0.5}
    learner = Learner({}, memory, tuple(history), spent | {"images": 100.0})
    results.write(folder, config, plan, learner)
    return folder


def report(*args) -> int:
    """python -m memo_jax report ARGS; returns the exit code."""
    return main(["report", *map(str, args)])


def rows_of(out: pathlib.Path, name: str) -> list[dict]:
    """The rows of one of a report's CSV files."""
    with (out / "tables" / f"{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def only_section(*folders: pathlib.Path) -> compare.Section:
    """The one section of a report on these folders."""
    (found,) = load.collect(list(folders))
    (section,) = compare.sections(found)
    return section


def of_cifar(folder, run, accuracy, total_mb, **settings) -> pathlib.Path:
    """A copy of a run in a setting of the paper, cifar100/b0i10."""
    own = {"dataset__name": "cifar100", "protocol__increment": 10, "backbone__name": "resnet32"}
    return write_run(folder, run, accuracy, memory__total_mb=total_mb, **own | settings)


def as_in_the_paper(folder, run, **settings) -> pathlib.Path:
    """MEMO as the paper has it in b0i10, but for `settings`; everywhere 1 below."""
    config = json.loads((run / "config.json").read_text())["resolved"]["schedule"]
    steps = {"epochs": 170, "milestones": [80, 150]}
    default = {
        "schedule__base": config["base"] | steps,
        "schedule__later": config["later"] | steps,
        "schedule__batch_size": 128,
        "protocol__stop_after": None,
    }
    accuracy = [a - 1 for a in paper.accuracies("cifar100/b0i10")["memo"].per_task]
    return of_cifar(folder, run, accuracy, 23.54, **default | settings)


def write_run(
    folder: pathlib.Path,
    run: pathlib.Path,
    accuracy: list[float] | None = None,
    done: int | None = None,
    **settings,
) -> pathlib.Path:
    """Copies a run's folder; its accuracies are made up.

    accuracy: by head after each task, as in the run if None; by nearest mean it is 1 more.
    done: how many tasks are learned, all if None. settings: such as `backbone__name="resnet14"`.
    """
    folder.mkdir(parents=True)
    shutil.copytree(run / "confusion", folder / "confusion")
    config = json.loads((run / "config.json").read_text())
    summary = json.loads((run / "summary.json").read_text())
    for name, value in settings.items():
        place = config["resolved"]
        *above, last = name.split("__")
        for part in above:
            place = place[part]
        assert last in place, name
        place[last] = value
    accuracy = accuracy or summary["accuracy"]["head"]
    summary |= _of(accuracy[:done])
    summary["num_tasks"] = len(accuracy)
    summary["memory"]["total_mb"] = config["resolved"]["memory"]["total_mb"]
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "summary.json").write_text(json.dumps(summary))
    return folder


def _of(accuracy: list[float]) -> dict:
    """The entries of a summary that go with these accuracies, by task."""
    tasks, mean = len(accuracy), statistics.fmean(accuracy)
    return {
        **{name: [50.0] * tasks for name in files.BY_TASK},
        "tasks_done": tasks,
        "accuracy": {"head": accuracy, "nearest_mean": [a + 1 for a in accuracy]},
        "averages": {"head": mean, "nearest_mean": mean + 1},
        "average_accuracy": mean,
        "last_accuracy": accuracy[-1],
        "accuracy_matrix": [[50.0] * (task + 1) for task in range(tasks)],
        "classes_seen": [2 * (task + 1) for task in range(tasks)],
    }


def write_study(folder: pathlib.Path, kind: str, runs: list[tuple]) -> pathlib.Path:
    """Writes study.json for runs (name, setting, method, labels)."""
    folder.mkdir(parents=True, exist_ok=True)
    keys = "name", "setting", "method", "labels"
    study = {"format": 1, "name": folder.name, "title": f"A study: {kind}", "kind": kind}
    study["runs"] = [dict(zip(keys, run)) for run in runs]
    (folder / "study.json").write_text(json.dumps(study))
    return folder
