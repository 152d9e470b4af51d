"""Before anything is trained: what each run will be, how far it is, whose base task it takes."""

import dataclasses
import functools
import json
import logging
import pathlib
from collections.abc import Sequence
from fnmatch import fnmatchcase

from ml_collections import ConfigDict

from memo_jax import base_task, budget, datasets, parallel, planning, results, run_folder
from memo_jax.commands.budget import DATASETS, Facts
from memo_jax.datasets import Dataset
from memo_jax.errors import UserError, near
from memo_jax.planning import Plan
from memo_jax.study import Run, Study

MOST_OF_A_CLASS = 1300
"""Images of a class where their number is not known: as many as ImageNet has at most."""


@dataclasses.dataclass(frozen=True, eq=False)
class Entry:
    """A run as it stands.

    plan: None if it cannot be made. terms: what determines its base task; runs in which they are
    equal share it. problem: why the run cannot start, if so. summary: what it says of itself, None
    before its first task is learned. class_size: training images of a class on average, None where
    it is not known.
    """

    run: Run
    folder: pathlib.Path
    plan: Plan | None
    terms: str
    problem: str | None
    begun: bool
    summary: dict | None
    class_size: float | None

    @property
    def tasks_done(self) -> int:
        return self.summary["tasks_done"] if self.summary else 0

    @property
    def done(self) -> bool:
        return self.summary is not None and self.tasks_done == self.summary["num_tasks"]

    @property
    def stuck(self) -> bool:
        return self.problem is not None and not self.done

    @property
    def to_run(self) -> bool:
        return not self.done and not self.stuck


def entries(study: Study) -> list[Entry]:
    """All runs of a study, as they stand.

    Raises UserError if a run's folder is in use for another config.
    """
    warnings = logging.getLogger("memo_jax")
    level = warnings.level
    warnings.setLevel(logging.ERROR)  # what planning warns of, the run itself says again
    try:
        return [_entry(study.folder / run.name, run) for run in study.runs]
    finally:
        warnings.setLevel(level)


def _entry(folder: pathlib.Path, run: Run) -> Entry:
    run_folder.expect_same_config(folder, run.config)
    plan, class_size, terms, problem = None, None, run.name, None
    try:
        planning.check(run.config, parallel.data_mesh().size)
        facts = _facts(**run.config.dataset)
        class_size = facts.num_images and facts.num_images / facts.num_classes
        plan = planning.make(run.config, blank(run.config))
        if not run.config.base_from:
            resolved = planning.resolved(run.config, plan)
            terms = json.dumps(base_task.terms(resolved), sort_keys=True)
    except UserError as error:
        problem = str(error)
    begun = run_folder.requested(folder) is not None
    summary = results.read(folder) if begun else None
    return Entry(run, folder, plan, terms, problem, begun, summary, class_size)


@functools.cache
def _facts(
    name: str, path: str, source: str, augment: str, image_size: int | None, **reading
) -> Facts:
    """What a dataset looks like: known beforehand, so that no data are needed, or by its outline.

    Called with the settings of config.dataset.
    """
    if name not in DATASETS:
        reading = datasets.Reading(image_size, **reading)
        dataset = datasets.outline(name, path, source, reading)
        train, test = len(dataset.train), len(dataset.test)
        return Facts(dataset.num_classes, dataset.image_shape, train, "", num_test=test)
    facts = DATASETS[name]
    height, width, channels = facts.image_shape
    shape = image_size or height, image_size or width, channels
    return dataclasses.replace(facts, image_shape=shape)


def blank(config: ConfigDict) -> Dataset:
    """A dataset of the right shapes that takes no memory, to plan with; classes of equal size."""
    facts = _facts(**config.dataset)
    size = facts.num_images or MOST_OF_A_CLASS * facts.num_classes
    train, test = (
        budget.shares(count, facts.num_classes, "fill") for count in (size, facts.num_test)
    )
    return datasets.blank(config.dataset.name, facts.image_shape, train, test)


def families(some: Sequence[Entry]) -> list[list[Entry]]:
    """The runs that have the same base task, together; in the order of their first ones."""
    found: dict[str, list[Entry]] = {}
    for entry in some:
        found.setdefault(entry.terms, []).append(entry)
    return list(found.values())


def chosen(some: Sequence[Entry], only: str | None) -> list[Entry]:
    """The runs whose names match the pattern `only`. Raises UserError if none does."""
    if only is None:
        return list(some)
    matching = [entry for entry in some if fnmatchcase(entry.run.name, only)]
    if not matching:
        names = [entry.run.name for entry in some]
        raise UserError(f"--only: no run is called {only!r}; {near(only, names)}")
    return matching


def in_shard(some: Sequence[Entry], shard: str | None) -> list[Entry]:
    """Part i of n (`shard` is "i/n") of some runs, in their order.

    Families are kept together: the largest ones are dealt first, each to the part that has the
    fewest runs until then. So the parts depend on the runs alone, not on how far they are.
    Raises UserError for a shard that is none.
    """
    if shard is None:
        return list(some)
    number, _, count = shard.partition("/")
    if not (number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
        raise UserError(f"--shard: expected i/n with i from 1 to n, such as 1/2, found {shard!r}")
    parts: list[list[Entry]] = [[] for _ in range(int(count))]
    for family in sorted(families(some), key=len, reverse=True):
        min(parts, key=len).extend(family)
    mine = {entry.run.name for entry in parts[int(number) - 1]}
    return [entry for entry in some if entry.run.name in mine]


def queue(some: Sequence[Entry]) -> list[Entry]:
    """What is left to run, in the order in which it is run: what has begun comes first."""
    return sorted((entry for entry in some if entry.to_run), key=lambda entry: not entry.begun)


def lender(entry: Entry, everyone: Sequence[Entry]) -> pathlib.Path | None:
    """The folder of the run whose base task `entry` starts from; None if it learns its own.

    A run that has begun goes on as it began. What lies in the folders at this moment decides.
    """
    if entry.run.config.base_from:
        return pathlib.Path(entry.run.config.base_from)
    asked = run_folder.requested(entry.folder)
    if asked:
        return asked["base_from"] and entry.folder.parent / pathlib.Path(asked["base_from"]).name
    others = (e.folder for e in everyone if e.terms == entry.terms and e is not entry)
    return next((folder for folder in others if _has_own_base_task(folder)), None)


def _has_own_base_task(folder: pathlib.Path) -> bool:
    asked = run_folder.requested(folder)
    learned = (folder / "checkpoints" / "task_000").is_dir()
    return learned and asked is not None and asked["base_from"] is None


def expected_lender(
    entry: Entry, queued: Sequence[Entry], everyone: Sequence[Entry]
) -> pathlib.Path | None:
    """As `lender`, when the runs before `entry` in the queue will have been run."""
    now = lender(entry, everyone)
    if now or entry.begun or entry not in queued:
        return now
    first = next(e for e in queued if e.terms == entry.terms)
    return None if first is entry else first.folder
