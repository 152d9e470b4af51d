"""What a run reports: task lines, confusion matrices, summary.json, the plot, the closing words."""

import json
import pathlib

import numpy as np
from ml_collections import ConfigDict

from memo_jax import evaluation, metrics, parallel
from memo_jax.clock import PHASES
from memo_jax.evaluation import Counts
from memo_jax.learner import Learner
from memo_jax.logging import RunLog, say, write_json
from memo_jax.planning import Plan
from memo_jax.protocol import Task, setting_name
from memo_jax.report import figures

KEYS = {"accuracy", "averages", "classes_seen", "seconds", "images_per_second", "digest"}
KEYS |= {"memory", "memory_by_task", "base_from", "tasks_done", "num_tasks"}
"""What the closing words and the readers of a summary rely on, besides metrics.SUMMARIES."""


def read(workdir: pathlib.Path) -> dict | None:
    """The summary of the folder if there is one that can be read.

    A torn one, or one of an older version, is not an answer: it is written again.
    """
    try:
        summary = json.loads((workdir / "summary.json").read_text())
        return summary if summary.keys() >= KEYS else None
    except (OSError, ValueError, AttributeError):
        return None


def finished(workdir: pathlib.Path) -> dict | None:
    """The summary of the folder if all its tasks are done."""
    summary = read(workdir)
    return summary if summary and summary["tasks_done"] == summary["num_tasks"] else None


def log_task(log: RunLog, plan: Plan, learner: Learner) -> None:
    """Logs and says how the task just learned went."""
    history, task = learner.history, plan.tasks[learner.tasks_done - 1]
    accuracy = {r: metrics.last_accuracy(history, r) for r in evaluation.rules_of(history)}
    line = {
        "task": task.index,
        "classes_seen": task.num_seen,
        **accuracy,
        "top5": metrics.top5(history)[-1],
        **learner.spent,
    }
    log.write("task", line, step=plan.epochs_until(task, plan.schedule(task).epochs))
    seconds = sum(learner.spent[phase] for phase in PHASES)
    named = ", ".join(f"{rule.replace('_', ' ')} {value:.2f} %" for rule, value in accuracy.items())
    say(
        f"task {task.index + 1}: {task.num_seen} classes seen, accuracy by {named}; "
        f"{seconds:.0f} s in all"
    )


def save_confusion(workdir: pathlib.Path, counts: Counts, task: Task) -> None:
    """confusion/task_000.npz ...: for each prediction rule `[K, K]`, true by predicted class."""
    if not parallel.is_lead():
        return
    folder = workdir / "confusion"
    folder.mkdir(exist_ok=True)
    matrices = dict(zip(evaluation.RULES, counts.confusion))
    np.savez_compressed(folder / f"task_{task.index:03d}.npz", **matrices)


def write(workdir: pathlib.Path, config: ConfigDict, plan: Plan, learner: Learner) -> dict:
    """Writes summary.json and the plot; returns the summary."""
    summary = summarise(config, plan, learner)
    if parallel.is_lead():
        figures.plot_accuracy(workdir / "report" / "accuracy.png", summary)
        write_json(workdir / "summary.json", summary)
    return summary


def summarise(config: ConfigDict, plan: Plan, learner: Learner) -> dict:
    """The content of summary.json: accuracies in percent, of the head unless named otherwise."""
    history, spent = list(learner.history), learner.spent
    rules = evaluation.rules_of(history)
    seconds = {phase: spent[phase] for phase in PHASES}
    return {
        "method": plan.method.name,
        "dataset": config.dataset.name,
        "setting": setting_name(config.protocol.base, config.protocol.increment),
        "backbone": config.backbone.name,
        "class_order_seed": config.protocol.class_order_seed,
        "seed": config.seed,
        "base_from": config.base_from,
        "num_tasks": len(plan.tasks),
        "tasks_done": learner.tasks_done,
        "classes_seen": [row["stop"] for row in history],
        "accuracy": {rule: metrics.accuracy(history, rule) for rule in rules},
        "averages": {rule: metrics.average_accuracy(history, rule) for rule in rules},
        **{name: metric(history) for name, metric in metrics.SUMMARIES.items()},
        "memory": plan.ledger.as_dict(),
        "memory_by_task": [row["memory"] for row in history],
        "seconds": {"total": sum(seconds.values()), **seconds},
        "images_per_second": spent["images"] / max(spent["train"], 1e-9),
        "waited_for_images": spent.get("waited", 0.0),
        "devices": parallel.describe(),
        "digest": learner.digest,
    }


def say_all(summary: dict, workdir: pathlib.Path) -> None:
    """Prints accuracies, memory, and where everything lies."""
    memory, seconds = summary["memory"], summary["seconds"]
    waited = summary["waited_for_images"]
    waiting = f", {waited:.0f} s of it waiting for images" if waited else ""
    say(f"\n{summary['method']} on {summary['dataset']} {summary['setting']}, accuracy in percent")
    say(
        "  classes seen  " + " ".join(f"{seen:6d}" for seen in summary["classes_seen"]) + " average"
    )
    for rule, average in summary["averages"].items():
        numbers = " ".join(f"{value:6.2f}" for value in [*summary["accuracy"][rule], average])
        say(f"  {rule.replace('_', ' '):13} {numbers}")
    say(
        f"memory: {memory['exemplars']} exemplars ({memory['exemplar_mb']:.2f} MB) + "
        f"{memory['parameters']:,} parameters ({memory['model_mb']:.2f} MB) = "
        f"{memory['total_mb']:.2f} MB"
    )
    say(
        f"time: {seconds['total']:.0f} s, of which training {seconds['train']:.0f} s "
        f"({summary['images_per_second']:.0f} images/s{waiting}), compilation "
        f"{seconds['compile']:.0f} s"
    )
    say(f"results: {workdir}/summary.json, plot: {workdir}/report/accuracy.png")
    say(f"curves:  tensorboard --logdir {workdir}/tensorboard")
