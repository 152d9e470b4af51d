"""Runs and studies as they lie on disk: finished, in progress, not begun."""

import dataclasses
import os
import pathlib
import zipfile

import numpy as np
from flax.traverse_util import flatten_dict

from memo_jax.errors import UserError, expect_one_of
from memo_jax.protocol import setting_name
from memo_jax.report import files

KINDS = {
    "settings": (),
    "curve": ("total_mb",),
    "freezing": (),
    "base_classes": ("base",),
    "class_orders": (),
    "cuts": (),
    "rho": ("share", "total_mb"),
}
"""Kinds of studies, and the labels, numbers all, that say where each of their runs belongs."""
STUDY_FORMAT = 1

CONFIG = {"seed", "dataset.name", "method.name", "backbone.name", "backbone.cut", "memory.total_mb"}
CONFIG |= {"protocol.base", "protocol.increment", "protocol.class_order_seed"}
CONFIG |= {"method.train_trunk", "method.train_old_blocks"}
CONFIG |= {"schedule.batch_size", "schedule.base.epochs", "schedule.later.epochs"}
"""What a report reads of the resolved settings in config.json."""


@dataclasses.dataclass(frozen=True)
class Run:
    """One run. settings: its resolved config, flat (`"backbone.name"`), empty if not begun.

    name: how it is called here; setting: `DATASET/bXiY`; labels: its place in a study; summary:
    what summary.json says, None before the first task is learned.
    """

    name: str
    folder: pathlib.Path
    method: str
    setting: str
    labels: dict
    settings: dict
    commit: str | None
    summary: dict | None

    @property
    def finished(self) -> bool:
        return bool(self.summary) and self.summary["tasks_done"] == self.summary["num_tasks"]

    @property
    def state(self) -> str:
        if self.finished:
            return "finished"
        if self.summary:
            return f"in progress: {self.summary['tasks_done']} of {self.summary['num_tasks']} tasks"
        return "in progress: no task learned yet" if self.settings else "not begun"

    def confusion(self, rule: str = "head") -> np.ndarray | None:
        """True class by predicted class after the last task, int `[K, K]`; None if not kept."""
        path = self.folder / "confusion" / f"task_{self.summary['tasks_done'] - 1:03d}.npz"
        if not path.exists():
            return None
        try:
            with np.load(path) as file:
                matrix = file[rule]
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            raise UserError(
                f"{path} is damaged ({error}); remove it to report without the confusion matrix"
            ) from error
        return matrix


@dataclasses.dataclass(frozen=True)
class RunSet:
    """Runs that are compared with one another: a study, or (kind None) runs given by hand."""

    title: str
    kind: str | None
    folder: pathlib.Path | None
    runs: tuple[Run, ...]

    @property
    def finished(self) -> list[Run]:
        return [run for run in self.runs if run.finished]


def collect(paths: list[pathlib.Path]) -> list[RunSet]:
    """The studies under the paths, and as one more set the runs that belong to none.

    Raises UserError for a path without either, for a file that cannot be read and for runs of
    more than one dataset, unless they are one study of settings.
    """
    studies, folders = {}, {}
    for path in paths:
        if not path.is_dir():
            found = "a file" if path.exists() else "nothing"
            raise UserError(f"{path}: expected the folder of a run or a study, found {found}")
        found = _find(path.resolve())
        if not any(found):
            raise UserError(
                f"{path} holds no run: expected config.json, summary.json or study.json in it or "
                f"below it"
            )
        studies |= dict.fromkeys(found[0])
        folders |= dict.fromkeys(found[1])
    sets = [_study(folder) for folder in studies]
    own = {run.folder for found in sets for run in found.runs}
    loose = [folder for folder in folders if folder not in own]
    if loose:
        shared = os.path.commonpath([folder.parent for folder in loose])
        named = [(str(folder.relative_to(shared)), folder) for folder in loose]
        sets.append(RunSet("Runs", None, None, tuple(_run(*each) for each in named)))
    _expect_one_dataset(sets)
    return sets


def _find(path: pathlib.Path) -> tuple[list[pathlib.Path], list[pathlib.Path]]:
    """The folders of studies and of single runs at or below `path`, sorted."""
    studies, runs = [], []
    for folder, below, names in os.walk(path):
        below.sort()
        if "study.json" in names:
            studies.append(pathlib.Path(folder))
        elif {"config.json", "summary.json"} & set(names):
            runs.append(pathlib.Path(folder))
        else:
            continue
        below.clear()
    return studies, runs


def _expect_one_dataset(sets: list[RunSet]) -> None:
    examples = {}
    for run in (run for found in sets for run in found.runs if run.settings):
        examples.setdefault(run.settings["dataset.name"], run.folder)
    together = len(sets) == 1 and sets[0].kind == "settings"
    if len(examples) > 1 and not together:
        listed = ", ".join(f"{name} (as {folder})" for name, folder in examples.items())
        raise UserError(
            f"expected runs of one dataset, found {listed}: accuracies on different data do not "
            f"compare; report them separately or as one study of settings"
        )


def _study(folder: pathlib.Path) -> RunSet:
    path = folder / "study.json"
    remedy = "make the study again"
    study = files.json_object(path, remedy)
    if study.get("format") != STUDY_FORMAT:
        raise UserError(
            f"{path}: expected format {STUDY_FORMAT}, found {study.get('format')!r}; {remedy}"
        )
    try:
        kind, title = study["kind"], study["title"]
        planned = [(r["name"], r["setting"], r["method"], r["labels"]) for r in study["runs"]]
        expect_one_of(f"{path}: kind", kind, KINDS)
        for name, *_, labels in planned:
            for label in KINDS[kind]:
                if not files.is_number(labels.get(label)):
                    raise UserError(f"{path}: {name} has no number {label!r} in labels; {remedy}")
    except KeyError as error:
        raise UserError(f"{path}: there is no {error}; {remedy}") from error
    except (TypeError, AttributeError) as error:
        raise UserError(f"{path} is damaged ({error}); {remedy}") from error
    runs = []
    for name, setting, method, labels in planned:
        if (folder / name / "config.json").exists() or (folder / name / "summary.json").exists():
            runs.append(_run(name, folder / name, labels))
        else:
            runs.append(Run(name, folder / name, method, setting, labels, {}, None, None))
    return RunSet(title, kind, folder, tuple(runs))


def _run(name: str, folder: pathlib.Path, labels: dict | None = None) -> Run:
    path = folder / "config.json"
    remedy = "it is no run of this program, or one of an older version: leave it out or run it anew"
    config = files.json_object(path, remedy)
    resolved = config.get("resolved")
    settings = flatten_dict(resolved, sep=".") if isinstance(resolved, dict) else {}
    missing = sorted({"commit"} - config.keys() | CONFIG - settings.keys())
    if missing:
        raise UserError(f"{path} lacks {', '.join(missing)}; {remedy}")
    protocol = setting_name(settings["protocol.base"], settings["protocol.increment"])
    return Run(
        name=name,
        folder=folder,
        method=settings["method.name"],
        setting=f"{settings['dataset.name']}/{protocol}",
        labels=labels or {},
        settings=settings,
        commit=config["commit"],
        summary=files.summary(folder / "summary.json"),
    )
