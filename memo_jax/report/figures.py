"""The kinds of figures a report has. They know numbers and names, not runs."""

import dataclasses
import pathlib
import textwrap
from collections.abc import Sequence

import numpy as np

from memo_jax.report import style, words


@dataclasses.dataclass(frozen=True)
class Curve:
    """A line of a figure. deviations: of each y over runs, None where it is unknown.

    faint: drawn thin and behind, without markers (what the paper prints).
    """

    label: str
    look: style.Look
    x: Sequence[float]
    y: Sequence[float]
    deviations: Sequence[float | None] = ()
    faint: bool = False


@dataclasses.dataclass(frozen=True)
class Axes:
    """What stands at the axes. ticks: x -> its text, where a number would not do."""

    x: str
    y: str
    ticks: dict[float, str] | None = None


def curves(figure, lines: Sequence[Curve], about: Axes, joined: bool = True) -> None:
    """Draws lines over x with bands of one deviation; joined False leaves the points alone."""
    axes = figure.add_subplot()
    for line in sorted(lines, key=lambda line: not line.faint):
        if line.faint:
            axes.plot(line.x, line.y, color=line.look.colour, lw=0.9, ls=(0, (3, 2)), alpha=0.75)
            continue
        style_of = {"color": line.look.colour, "marker": line.look.marker, "label": line.label}
        axes.plot(line.x, line.y, **style_of, ls=line.look.dash if joined else "", lw=1.8)
        if line.deviations and None not in line.deviations:
            _spread(axes, line, joined and len(line.x) > 1)
    if any(line.faint for line in lines):
        axes.plot([], [], color=style.INK, lw=0.9, ls=(0, (3, 2)), label="the paper")
    axes.set(xlabel=about.x, ylabel=about.y)
    places = sorted({x for line in lines for x in line.x})
    if about.ticks:
        names = list(about.ticks.values())
        axes.set_xticks(list(about.ticks), names, rotation=30, ha="right", rotation_mode="anchor")
        axes.set_xlim(min(about.ticks) - 0.4, max(about.ticks) + 0.4)
    elif len(places) <= 11:
        axes.set_xticks(places, [f"{x:g}" for x in places])
    low, high = axes.get_ylim()
    axes.set_ylim(max(low, -1), min(high, 101))
    _legend(figure)


def _spread(axes, line: Curve, band: bool) -> None:
    """One deviation up and down: a band along a line, bars at points."""
    if band:
        low, high = np.subtract(line.y, line.deviations), np.add(line.y, line.deviations)
        axes.fill_between(line.x, low, high, color=line.look.colour, alpha=0.18, lw=0)
    else:
        axes.errorbar(line.x, line.y, line.deviations, color=line.look.colour, ls="", capsize=3)


def _legend(figure) -> None:
    labels = figure.axes[0].get_legend_handles_labels()[1]
    figure.legend(loc="outside lower center", ncols=_columns(labels))


def _columns(labels: Sequence[str]) -> int:
    """As many columns of a legend as fit the width."""
    longest = max(map(len, labels))
    return 1 if longest > 26 else 2 if longest > 12 else 3


def curves_height(lines: Sequence[Curve]) -> float:
    """Inches that `curves` needs with the legend of these lines."""
    labels = [line.label for line in lines if not line.faint]
    labels += ["the paper"] * (len(labels) < len(lines))
    return 3.2 + 0.19 * -(-len(labels) // _columns(labels))


def bars(
    figure,
    names: Sequence[str],
    parts: dict[str, tuple[Sequence[float], str, str]],
    xlabel: str,
    deviations: Sequence[float | None] = (),
) -> None:
    """Draws a horizontal bar for each name, of stacked parts, its sum written beside it.

    parts: label -> (a length for each name, colour, hatching).
    """
    axes = figure.add_subplot()
    rows, ends = np.arange(len(names)), np.zeros(len(names))
    for label, (lengths, colour, hatch) in parts.items():
        axes.barh(rows, lengths, 0.66, ends, color=colour, hatch=hatch, label=label, lw=0)
        ends = ends + lengths
    for row, end, deviation in zip(rows, ends, deviations or [None] * len(names)):
        if deviation is not None:
            axes.errorbar(end, row, xerr=deviation, color=style.INK, capsize=3)
        text = f"{end:.1f}" if end < 100 else f"{end:.0f}"
        axes.annotate(
            text, (end + (deviation or 0), row), (4, 0), textcoords="offset points", va="center"
        )
    wrapped = [textwrap.fill(name, 18, break_long_words=False) for name in names]
    axes.set_yticks(rows, wrapped)
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.margins(x=0.14)
    axes.set_xlim(left=0)
    axes.set_xlabel(xlabel)
    if len(parts) > 1:
        _legend(figure)


def bars_height(names: Sequence[str], legend: bool) -> float:
    """Inches that `bars` needs for these names."""
    lines = sum(max(1.5, len(textwrap.wrap(name, 18))) for name in names)
    return 1.1 + 0.24 * lines + (0.5 if legend else 0)


def accuracy_matrix(figure, matrix: Sequence[Sequence[float]]) -> None:
    """Draws the accuracy after each task (down) on each task's classes (across), in percent."""
    size = len(matrix)
    square = np.full((size, size), np.nan)
    for stage, row in enumerate(matrix):
        square[stage, : len(row)] = row
    axes = _heat(figure, square, "accuracy (%)", power=1.0)
    if size <= 12:
        for (stage, task), value in np.ndenumerate(square):
            if not np.isnan(value):
                colour = "white" if value < 55 else "black"
                place = {"ha": "center", "va": "center", "size": 8, "in_layout": False}
                axes.text(task, stage, f"{value:.0f}", color=colour, **place)
    numbers = np.arange(0, size, 1 if size <= 12 else 5)
    axes.set_xticks(numbers, numbers + 1)
    axes.set_yticks(numbers, numbers + 1)
    axes.set(xlabel="classes of task", ylabel="after task")


def confusion(figure, counts: np.ndarray, stops: Sequence[int]) -> None:
    """Draws predictions (across) of each true class (down), with the tasks' borders.

    counts: int `[K, K]`; stops: classes seen after each task. A root scale shows rare mistakes.
    """
    share = 100 * counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    axes = _heat(figure, share, "of the true class (%)", power=0.5)
    for stop in stops[:-1]:
        axes.axvline(stop - 0.5, color="white", lw=0.5)
        axes.axhline(stop - 0.5, color="white", lw=0.5)
    axes.set(xlabel="predicted class, in order of arrival", ylabel="true class")


def _heat(figure, square: np.ndarray, label: str, power: float):
    from matplotlib.colors import PowerNorm

    axes = figure.add_subplot()
    norm = PowerNorm(power, vmin=0, vmax=100)
    image = axes.imshow(square, cmap="cividis", norm=norm, interpolation="none")
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    figure.colorbar(image, ax=axes, label=label, shrink=0.85, pad=0.02)
    return axes


def plot_accuracy(path: pathlib.Path, summary: dict) -> None:
    """Draws a run's accuracy over classes seen, by each prediction rule, to `path` (PNG)."""
    looks = {"head": style.LOOKS["der"], "nearest_mean": style.LOOKS["memo"]}
    lines = [
        Curve(
            f"{words.RULES[rule]}, average {summary['averages'][rule]:.2f} %",
            looks[rule],
            summary["classes_seen"],
            values,
        )
        for rule, values in summary["accuracy"].items()
    ]
    title = f"{words.method(summary['method'])}, {summary['dataset']} {summary['setting']}, "
    title += f"{summary['backbone']}, {summary['memory']['total_mb']:.1f} MB"
    about = Axes("classes seen", "accuracy over all classes seen (%)")
    path.parent.mkdir(parents=True, exist_ok=True)
    with style.canvas(title, 3.6) as figure:
        curves(figure, lines, about)
        figure.savefig(path, dpi=160)
