"""The plots of benchmarks.scaling: one file for each axis."""

import math
import pathlib
from collections.abc import Iterator

from benchmarks.report import MB

NAMES = {
    "train": "training step",
    "forward": "forward pass",
    "herding": "herding",
    "means": "class means",
    "evaluate": "evaluation of a batch",
}
BYTES = {
    "parameters": "parameters",
    "exemplars": "exemplars",
    "training_state": "training state",
    "step_temporary": "temporary",
    "step_total": "total",
    "peak_device": "peak of the device",
}
"""Those that are shown; scaling.json has all."""

PANELS = {
    "blocks": ("time", "compilation", "memory"),
    "batch": ("rate", "time", "memory"),
    "exemplars": ("time", "memory"),
    "classes": ("time", "memory"),
    "devices": ("time", "rate", "memory"),
}
LABELS = {
    "blocks": "blocks",
    "batch": "batch (images)",
    "exemplars": "exemplars",
    "classes": "classes seen",
    "devices": "devices",
    "estimate": "task",
}
PHASES = {"train": "training", "compile": "compiling", "exemplars": "exemplars"}
PHASES |= {"evaluate": "evaluation"}
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
"""Okabe and Ito's, which colour-blind people tell apart; shapes differ as well."""
SHAPES = ("o", "s", "^", "D", "v", "P", "X")

Series = Iterator[tuple[int, str, list[tuple[float, float, float]]]]
"""(place among the colours, name, (middle, least, most) at each row of an axis)."""


def virtual(about: dict) -> bool:
    """Whether several devices can only be virtual ones."""
    return about["sides"]["scaling"]["platform"] == "cpu"


def duration(seconds: float) -> str:
    """In the unit that suits: `1.25 h`, `12.5 min`, `3.20 s`."""
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"


def plot(folder: pathlib.Path, results: dict) -> None:
    """blocks.png, batch.png, ...: whatever has been measured."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    about = results["about"]
    device = about["sides"]["scaling"]["device"]
    title = f"{about['method']} on {about['dataset']}, {about['backbone']}, {device}"
    for axis, rows in results["axes"].items():
        if axis in PANELS and rows:
            figure = _axis(pyplot, axis, rows, about)
            note = "; virtual devices share the CPU's cores" if virtual(about) else ""
            figure.suptitle(title + note * (axis == "devices"))
            figure.savefig(folder / f"{axis}.png", dpi=150)
            pyplot.close(figure)
    if results["estimate"]:
        figure = _estimate(pyplot, results["estimate"])
        total = duration(results["estimate"]["seconds"]["total"])
        figure.suptitle(f"{title}: the whole run takes {total} (estimate)")
        figure.savefig(folder / "estimate.png", dpi=150)
        pyplot.close(figure)


def _axis(pyplot, axis: str, rows: list[dict], about: dict):
    """A figure with a panel for each of the axis's kinds of quantity."""
    kinds = {
        "time": ("time (ms)", _times),
        "rate": ("images per second", _rates),
        "compilation": ("compilation (s)", _compilations),
        "memory": ("memory (MB)", _memory),
    }
    panels, at = PANELS[axis], [row["value"] for row in rows]
    size = (4.5 * len(panels), 4)
    figure, axes = pyplot.subplots(1, len(panels), figsize=size, layout="constrained")
    for panel, kind in zip(axes, panels):
        label, series = kinds[kind]
        for i, name, values in series(rows):
            middle, least, most = zip(*values)
            style = {"color": COLOURS[i], "marker": SHAPES[i], "label": name}
            panel.plot(at, middle, **style)
            panel.fill_between(at, least, most, color=COLOURS[i], alpha=0.2)
        if axis == "devices" and kind == "time":
            _ideal(panel, rows, virtual(about))
        panel.set(xlabel=LABELS[axis], ylabel=label)
        if axis != "blocks":
            panel.set_xscale("log")
            panel.minorticks_off()
        panel.set_xticks(at, labels=[f"{value:,}" for value in at])
        if kind == "memory" or (kind == "time" and axis not in ("blocks", "devices")):
            _log(panel)
        else:
            panel.set_ylim(0, None)
        panel.grid(alpha=0.3)
        panel.legend(fontsize="small")
    return figure


def _log(panel) -> None:
    """A logarithmic y-axis of whole decades, with plain numbers at them."""
    from matplotlib import ticker

    panel.set_yscale("log")
    bottom, top = panel.get_ylim()
    panel.set_ylim(10 ** math.floor(math.log10(bottom)), 10 ** math.ceil(math.log10(top)))
    panel.yaxis.set_major_formatter(ticker.StrMethodFormatter("{x:,g}"))
    panel.yaxis.set_minor_formatter(ticker.NullFormatter())


def _ideal(panel, rows: list[dict], virtual: bool) -> None:
    """What the step would take if nothing were lost by dividing it."""
    first, at = rows[0], [row["value"] for row in rows]
    step = 1e3 * first["measured"]["train"]["median"]
    times = [step if virtual else step * first["value"] / value for value in at]
    panel.plot(at, times, "--", color="black", linewidth=1, label="step without any loss")


def _times(rows: list[dict]) -> Series:
    for i, name, found in _phases(rows):
        yield i, name, [[1e3 * f[key] for key in ("median", "least", "most")] for f in found]


def _rates(rows: list[dict]) -> Series:
    for i, name, found in _phases(rows):
        keys = ("median", "most", "least")
        yield i, name, [[f["images"] / f[key] for key in keys] for f in found]


def _compilations(rows: list[dict]) -> Series:
    for i, name, found in _phases(rows):
        yield i, name, [[f["compile_seconds"]] * 3 for f in found]


def _phases(rows: list[dict]) -> Iterator[tuple[int, str, list[dict]]]:
    for i, (phase, name) in enumerate(NAMES.items()):
        if phase in rows[0]["measured"]:
            yield i, name, [row["measured"][phase] for row in rows]


def _memory(rows: list[dict]) -> Series:
    for i, (name, label) in enumerate(BYTES.items()):
        sizes = [row["bytes"].get(name) for row in rows]
        if any(sizes):
            # A gap where it is not known.
            sizes = [float("nan") if size is None else size / MB for size in sizes]
            yield i, label, [[size] * 3 for size in sizes]


def _estimate(pyplot, estimate: dict):
    """Stacked bars: seconds of each task by phase."""
    tasks = estimate["tasks"]
    longest = max(sum(task["seconds"].values()) for task in tasks)
    unit, size = next(
        u for u in (("h", 3600), ("min", 60), ("s", 1)) if longest >= u[1] or u[1] == 1
    )
    figure, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
    numbers, below = [task["task"] for task in tasks], [0.0] * len(tasks)
    for colour, (phase, name) in zip(COLOURS, PHASES.items()):
        heights = [task["seconds"][phase] / size for task in tasks]
        total = duration(estimate["seconds"][phase])
        axes.bar(numbers, heights, bottom=below, color=colour, label=f"{name}: {total}")
        below = [sum(pair) for pair in zip(below, heights)]
    axes.set(xlabel="task", ylabel=f"time ({unit})", xticks=numbers)
    axes.grid(alpha=0.3, axis="y")
    axes.legend()
    return figure
