"""Studies: sets of runs, each declared by a short file in configs/studies/.

A study is a config as of an experiment, which all its runs start from, and a section `study` that
says how they differ: `declare` adds it, `read` turns it into the list of runs. `outline` finds out
how far each of them is and which share a base task, `forecast` how long they will take, `runner`
runs them.
"""

import copy
import dataclasses
import functools
import pathlib
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from ml_collections import ConfigDict

from memo_jax import protocol, run_folder
from memo_jax.errors import UserError, expect_one_of, near
from memo_jax.report.load import KINDS

PAPER = "paper"
"""The scale of a study that is meant for results; smaller twins have other names."""


@dataclasses.dataclass(frozen=True)
class Case:
    """A run, or what several runs have in common: part of the name, settings, place on the axes.

    settings: dotted names and values, such as `{"method.train_trunk": "true"}`.
    """

    name: str
    settings: Mapping[str, Any]
    labels: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def product(*axes: Iterable[Case]) -> list[Case]:
    """Every combination of a case of each axis, the last axis changing fastest."""
    return functools.reduce(lambda some, axis: [_both(a, b) for a in some for b in axis], axes)


def _both(a: Case, b: Case) -> Case:
    return Case(f"{a.name}-{b.name}", {**a.settings, **b.settings}, {**a.labels, **b.labels})


def changes(config: ConfigDict, base: ConfigDict) -> dict[str, Any]:
    """The settings in which an experiment differs from the defaults: what makes a Case of it."""
    theirs, defaults = (run_folder.flat(c.to_dict()) for c in (config, base))
    return {name: value for name, value in theirs.items() if value != defaults[name]}


def declare(
    config: ConfigDict, *, kind: str, title: str, cases: Iterable[Case], scale: str = PAPER
) -> ConfigDict:
    """A study of the given cases, each of them a change of `config`: what get_config() returns.

    kind: how a report shows it, one of memo_jax.report.load.KINDS.
    Its settings can be changed on the command line for all runs, and so can `study.seeds`.
    """
    with config.unlocked():
        section = {"kind": kind, "title": title, "scale": scale, "seeds": (1,)}
        config.study = ConfigDict({**section, "cases": tuple(cases)})
    return config


@dataclasses.dataclass(frozen=True)
class Run:
    """One run of a study. labels: its place on the study's axes."""

    name: str
    config: ConfigDict
    labels: Mapping[str, Any]

    @property
    def setting(self) -> str:
        """The benchmark setting: `cifar100/b0i10`."""
        split = self.config.protocol
        return f"{self.config.dataset.name}/{protocol.setting_name(split.base, split.increment)}"

    @property
    def method(self) -> str:
        return self.config.method.name


@dataclasses.dataclass(frozen=True)
class Study:
    """A set of runs, each in a folder of its name inside `folder`."""

    name: str
    title: str
    kind: str
    folder: pathlib.Path
    runs: tuple[Run, ...]


def is_study(config: ConfigDict) -> bool:
    """Whether a config file declares a study."""
    return "study" in config


def of_one(config: ConfigDict, folder: pathlib.Path) -> Study:
    """An experiment as a study of one run, which lies in `folder`."""
    folder = folder if folder.name else folder.absolute()
    run = Run(folder.name, config, {})
    return Study(folder.name, "one experiment", "", folder.parent, (run,))


def read(
    config: ConfigDict, file_name: str, folder: str | None, overridden: Collection[str] = ()
) -> Study:
    """The study that a config declares; its folder is by default runs/studies/<name>[-<scale>].

    overridden: settings given on the command line; they hold for all runs.
    Raises UserError for a declaration that is off, and for an overridden setting in which the runs
    differ.
    """
    section, common = config.study, copy.deepcopy(config)
    with common.unlocked():
        del common.study
    expect_one_of("study.kind", section.kind, KINDS)
    if not all(isinstance(case, Case) for case in section.cases):
        raise UserError("study.cases: expected cases as memo_jax.study.Case, found something else")
    for case in section.cases:
        for label in KINDS[section.kind]:
            if label not in case.labels:
                raise UserError(f"run {case.name}: a study of {section.kind} needs a label {label}")
    _expect_common(overridden, section.cases)
    seeds = [Case(f"seed{seed}", {"seed": seed}, {"seed": seed}) for seed in _seeds(section.seeds)]
    runs = tuple(_run(common, case) for case in product(section.cases, seeds))
    names = [run.name for run in runs]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice or not runs:
        found = f"two of the name {twice[0]!r}" if twice else "none"
        raise UserError(f"study.cases: expected runs with names of their own, found {found}")
    name = file_name if section.scale == PAPER else f"{file_name}-{section.scale}"
    place = pathlib.Path(folder) if folder else pathlib.Path("runs", "studies", name)
    return Study(name, section.title, section.kind, place, runs)


def _expect_common(overridden: Collection[str], cases: Iterable[Case]) -> None:
    """Raises UserError for settings of the command line that belong to the runs."""
    own = {name for case in cases for name in case.settings}
    for name in overridden:
        if name == "seed":
            raise UserError("a study has a list of seeds; set --config.study.seeds=1,2,3")
        if name in own:
            raise UserError(
                f"--config.{name}: the runs of this study differ in it; choose among them with "
                f"--only GLOB"
            )


def _seeds(seeds: tuple) -> tuple[int, ...]:
    whole = [seed for seed in seeds if isinstance(seed, int) and not isinstance(seed, bool)]
    if not seeds or len(whole) != len(seeds) or len(set(seeds)) != len(seeds):
        raise UserError(
            f"study.seeds: expected different whole numbers such as 1,2,3, found {seeds!r}"
        )
    return seeds


def _run(common: ConfigDict, case: Case) -> Run:
    """The run of a case. Raises UserError for a setting that is not there or of another type."""
    config = copy.deepcopy(common)
    known = run_folder.flat(config.to_dict())
    for name, value in case.settings.items():
        if name not in known:
            raise UserError(f"run {case.name}: there is no setting {name!r}; {near(name, known)}")
        try:
            config.update_from_flattened_dict({name: value})
        except (TypeError, ValueError) as error:
            raise UserError(f"run {case.name}: {name} cannot be {value!r} ({error})") from error
    if pathlib.Path(case.name).name != case.name:
        raise UserError(f"study.cases: expected names that a folder may have, found {case.name!r}")
    return Run(case.name, config, case.labels)
