"""How methods, schedules and settings are called in a report, and what is not as in the paper."""

import dataclasses
import json
import re

from memo_jax import paper
from memo_jax.methods import base as methods
from memo_jax.methods import get
from memo_jax.report.load import Run

METHODS = {
    "memo": "MEMO",
    "der": "DER",
    "wa": "WA",
    "icarl": "iCaRL",
    "replay": "Replay",
    "finetune": "Finetune",
    "joint": "Joint",
    "spm": "SPM",
    "gr": "GR",
    "esgr": "ESGR",
}
"""Method -> its name in print; one that is not here goes by its file's name."""

RULES = {"head": "head", "nearest_mean": "nearest mean"}
SAME_MEMORY = 0.01
"""Totals of memory that differ by less, relatively, count as equal: one image is not divided."""
PAPER_ORDER, PAPER_BATCH = 1993, 128

SETTINGS = {
    "backbone.name": "{}",
    "backbone.cut": "cut {}",
    "memory.total_mb": "{:.1f} MB",
    "method.train_trunk": {True: "trunk trained", False: "trunk frozen"},
    "method.train_old_blocks": {True: "old blocks trained", False: "old blocks frozen"},
    "protocol.class_order_seed": "class order {}",
    "protocol.stop_after": "stopped after {} tasks",
}
"""A setting's value in words, where the bare name and value would read badly."""


def method(name: str) -> str:
    """A method's name in print."""
    return METHODS.get(name, name)


def setting(name: str, value) -> str:
    """A setting in words: `cut memo-2`, `schedule.later.epochs 4`."""
    form = SETTINGS.get(name, f"{name} {{}}")
    return form[value] if isinstance(form, dict) else form.format(value)


def slug(name: str) -> str:
    """A name as part of a file's name or an id."""
    return re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-")


def number(value: float | None, digits: int = 2) -> str:
    """A number rounded for print, empty for None."""
    return "" if value is None else f"{value:.{digits}f}"


def schedule(run: Run) -> str:
    """Epochs of the base task and of later ones, and whose they are: `170+170 epochs (paper)`.

    A schedule with numbers of its own has no name, whatever it started from.
    """
    settings = run.settings
    epochs = f"{settings['schedule.base.epochs']}+{settings['schedule.later.epochs']} epochs"
    named = next((name for name in methods.SCHEDULES if _follows(run, name)), None)
    batch = settings["schedule.batch_size"]
    extras = f", batch {batch}" if batch != PAPER_BATCH else ""
    return f"{epochs} ({named}){extras}" if named else f"{epochs}{extras}"


def _follows(run: Run, name: str) -> bool:
    """Whether both parts of the run's schedule are exactly those of a named one."""
    for part, wanted in zip(("base", "later"), methods.schedules(get(run.method), name)):
        fields = json.loads(json.dumps(dataclasses.asdict(wanted)))
        if any(run.settings.get(f"schedule.{part}.{f}") != value for f, value in fields.items()):
            return False
    return True


def tasks(run: Run) -> str:
    """How much of the stream a finished run learned: `10 tasks`, `first 5 of 10 tasks`."""
    learned = run.summary["num_tasks"]
    printed = list(paper.accuracies(run.setting).values())
    whole = len(printed[0].per_task) if printed else None
    if learned == whole or learned != run.settings.get("protocol.stop_after"):
        return f"{learned} tasks"
    return f"first {learned} of {whole} tasks" if whole else f"first {learned} tasks"


def unlike_paper(run: Run) -> dict[str, str]:
    """In what a finished run is not as the paper's accuracies were reached: found, printed.

    Keys: backbone, memory, cut, schedule, order, tasks. Empty if nothing is; also for a setting
    that the paper does not have. The backbone is compared with the paper's at the run's memory,
    if it has a table for that.
    """
    table = paper.aligned(run.setting)
    if not table:
        return {}
    settings, found = run.settings, {}
    total_mb, backbone = settings["memory.total_mb"], settings["backbone.name"]
    here = [t for t in paper.memory_tables() if t.setting == run.setting]
    at_memory = [t for t in here if same_memory(t.total_mb, total_mb)]
    entry = (at_memory or [table])[0].rows.get(run.method)
    if entry and backbone != entry["backbone"]:
        found["backbone"] = f"{backbone} for {entry['backbone']}"
    if not same_memory(total_mb, table.total_mb):
        found["memory"] = f"{total_mb:.1f} MB for {table.total_mb:.1f} MB"
    if settings["backbone.cut"] != "memo":
        found["cut"] = f"cut {settings['backbone.cut']}"
    if not _follows(run, "paper") or settings["schedule.batch_size"] != PAPER_BATCH:
        found["schedule"] = schedule(run)
    if settings["protocol.class_order_seed"] != PAPER_ORDER:
        found["order"] = f"class order {settings['protocol.class_order_seed']}"
    if tasks(run).startswith("first"):
        found["tasks"] = tasks(run)
    return found


def commit(run: Run) -> str:
    """The commit that a run was made with, short; empty if it is not known."""
    commit = run.commit or ""
    return commit[:10] + ("-dirty" if commit.endswith("-dirty") else "")


def same_memory(a: float, b: float) -> bool:
    """Whether two totals of memory count as equal."""
    return abs(a - b) <= SAME_MEMORY * max(a, b)
