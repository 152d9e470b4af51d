"""Runs grouped into lines over seeds, and which differences between lines exceed that spread."""

import dataclasses
import itertools
import json
import math
from collections.abc import Callable, Sequence

import numpy as np

from memo_jax.report import words
from memo_jax.report.load import Run, RunSet

SEEDS = {"seed", "base_from"}
ASIDE = {"dataset.path", "dataset.source", "profile", "train.loop", "train.eval_batch_size"}
ASIDE |= {"checkpoints.every_epochs", "schedule.name", "method.name"}
ASIDE |= {"memory.exemplars", "memory.align_to", "memory.base_exemplars"}
"""Settings that say how or where, or whose consequence is compared itself (total_mb, epochs)."""

FACETS = {"curve": "total_mb", "rho": "total_mb"}
"""The label of a study by which its runs are apart: only runs that share it are compared."""
VARIED = {
    "curve": {"backbone.name"},
    "rho": {"backbone.name"},
    "freezing": {"method.train_trunk", "method.train_old_blocks"},
    "base_classes": {"method.train_trunk"},
    "class_orders": {"protocol.class_order_seed"},
    "cuts": {"backbone.cut"},
}
"""What a study varies on purpose: no reason for a warning."""
CONFIDENCE = 0.95


@dataclasses.dataclass(frozen=True)
class Spread:
    """Mean over runs and their sample standard deviation, None of a single run."""

    mean: float
    deviation: float | None

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        deviation = float(np.std(values, ddof=1)) if len(values) > 1 else None
        return cls(float(np.mean(values)), deviation)

    def __str__(self) -> str:
        mean = words.number(self.mean)
        return mean if self.deviation is None else f"{mean} ± {words.number(self.deviation)}"


@dataclasses.dataclass(frozen=True)
class Line:
    """Finished runs that differ in nothing but their seeds (and, in that study, class orders).

    variant: in what it differs from other lines of its method in the same section, in words;
    number: which of them it is, from 0.
    """

    method: str
    variant: str
    number: int
    runs: tuple[Run, ...]

    @property
    def label(self) -> str:
        name = words.method(self.method)
        return f"{name}, {self.variant}" if self.variant else name

    @property
    def settings(self) -> dict:
        return self.runs[0].settings

    @property
    def classes_seen(self) -> list[int]:
        return self.runs[0].summary["classes_seen"]

    def has(self, rule: str) -> bool:
        return all(rule in run.summary["accuracy"] for run in self.runs)

    def each(self, pick: Callable[[dict], float]) -> list[float]:
        """A number of every run's summary."""
        return [pick(run.summary) for run in self.runs]

    def spread(self, pick: Callable[[dict], float]) -> Spread:
        """A number of the summaries, over the runs."""
        return Spread.of(self.each(pick))

    def stages(self, rule: str = "head") -> list[Spread]:
        """Accuracy after each task."""
        return [Spread.of(values) for values in zip(*self.each(lambda s: s["accuracy"][rule]))]


def average(summary: dict) -> float:
    return summary["average_accuracy"]


def last(summary: dict) -> float:
    return summary["last_accuracy"]


@dataclasses.dataclass(frozen=True)
class Section:
    """The lines of one setting (and one memory size, in a study of several).

    unequal: settings in which lines differ though the study does not vary them -> value in words
    -> the lines' labels.
    """

    setting: str
    total_mb: float | None
    lines: tuple[Line, ...]
    unequal: dict[str, dict[str, list[str]]]

    @property
    def title(self) -> str:
        title = self.setting.replace("/", " ")
        return title if self.total_mb is None else f"{title}, {self.total_mb:g} MB"


def sections(found: RunSet) -> list[Section]:
    """The finished runs of a set by what may be compared: setting and, on a curve, memory."""
    facet, groups = FACETS.get(found.kind), {}
    for run in found.finished:
        groups.setdefault((run.setting, run.labels[facet] if facet else None), []).append(run)
    by_name = sorted(groups.items(), key=lambda item: (_natural(item[0][0]), item[0][1] or 0))
    return [_section(*key, runs, VARIED.get(found.kind, set())) for key, runs in by_name]


def _natural(setting: str) -> list:
    """Sorts b5i5 before b10i5."""
    parts = itertools.groupby(setting, str.isdigit)
    return [(digits, int("".join(p)) if digits else "".join(p)) for digits, p in parts]


def _section(setting: str, total_mb: float | None, runs: list[Run], varied: set) -> Section:
    pooled = varied & {"protocol.class_order_seed"}
    groups = {}
    for run in runs:
        settings = {k: v for k, v in run.settings.items() if k not in SEEDS | ASIDE | pooled}
        key = run.method, json.dumps(settings, sort_keys=True), *run.summary["classes_seen"]
        groups.setdefault(key, []).append(run)
    bare = [Line(key[0], "", 0, tuple(group)) for key, group in groups.items()]
    rank = list(words.METHODS)
    bare.sort(key=lambda line: rank.index(line.method) if line.method in rank else len(rank))
    lines = []
    for _, same in itertools.groupby(bare, lambda line: line.method):
        same = list(same)
        differing = _differing([line.settings for line in same])
        for number, line in enumerate(same):
            told = [words.setting(n, line.settings[n]) for n in differing if n in line.settings]
            lines.append(dataclasses.replace(line, variant=", ".join(told), number=number))
    unequal = _pools(lines) if pooled else {}
    for name in _differing([line.settings for line in lines]):
        if name not in varied:
            by_value = unequal.setdefault(name, {})
            for line in lines:
                by_value.setdefault(_value(line.settings, name), []).append(line.label)
    return Section(setting, total_mb, tuple(lines), unequal)


def _pools(lines: list[Line]) -> dict[str, dict[str, list[str]]]:
    """Whether lines that are means over class orders are so over the same ones (as `unequal`)."""
    name, by_value = "protocol.class_order_seed", {}
    for line in lines:
        orders = sorted({run.settings[name] for run in line.runs})
        by_value.setdefault(", ".join(map(str, orders)), []).append(line.label)
    return {name: by_value} if len(by_value) > 1 else {}


def _value(settings: dict, name: str) -> str:
    if name not in settings:
        return "not stated"
    value = settings[name]
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _differing(several: list[dict]) -> list[str]:
    """Settings that matter and are not the same in all, sorted."""
    names = sorted({name for settings in several for name in settings} - SEEDS - ASIDE)
    return [name for name in names if not _equal(name, several)]


def _equal(name: str, several: list[dict]) -> bool:
    first = several[0]
    if name == "memory.total_mb":
        return all(words.same_memory(first[name], settings[name]) for settings in several)
    return all(settings.get(name) == first.get(name) for settings in several)


def interval(a: Sequence[float], b: Sequence[float]) -> tuple[float, float] | None:
    """Welch's 95 % interval for mean(a) - mean(b); None if either is a single number.

    Deviations may differ; degrees of freedom by Welch and Satterthwaite.
    """
    if min(len(a), len(b)) < 2:
        return None
    from scipy.stats import t  # slow to import, and of no use to a run

    difference = float(np.mean(a) - np.mean(b))
    parts = [float(np.var(values, ddof=1)) / len(values) for values in (a, b)]
    if not sum(parts):
        return difference, difference
    freedom = sum(parts) ** 2 / sum(p**2 / (len(v) - 1) for p, v in zip(parts, (a, b)))
    half = float(t.ppf((1 + CONFIDENCE) / 2, freedom)) * math.sqrt(sum(parts))
    return difference - half, difference + half


@dataclasses.dataclass(frozen=True)
class Difference:
    """Line a less line b in a number of the summary; interval None if the spread is unknown."""

    a: Line
    b: Line
    mean: float
    interval: tuple[float, float] | None

    @property
    def verdict(self) -> str:
        if self.interval is None:
            return "unknown: one run"
        low, high = self.interval
        return "yes" if low > 0 or high < 0 else "no"


def differences(lines: Sequence[Line], pick: Callable[[dict], float]) -> list[Difference]:
    """All pairs of lines, the better one first, in the order of their means."""
    best_first = sorted(lines, key=lambda line: -line.spread(pick).mean)
    found = []
    for a, b in itertools.combinations(best_first, 2):
        values = a.each(pick), b.each(pick)
        mean = float(np.mean(values[0]) - np.mean(values[1]))
        found.append(Difference(a, b, mean, interval(*values)))
    return found
