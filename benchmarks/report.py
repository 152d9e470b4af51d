"""The results of a comparison as rows, JSON, a table and a plot."""

import dataclasses
import os
import pathlib
import platform
import statistics

from benchmarks.job import Job
from benchmarks.processes import NAMES
from memo_jax import run_folder
from memo_jax.logging import write_json

MB = 2**20
# row -> (name in the table, unit, units in one second or byte)
KINDS = {
    "train": ("training step", "ms", 1e3),
    "compile": ("its compilation", "s", 1),
    "forward": ("forward, a batch of {images:.0f}", "ms", 1e3),
    "herding": ("herding the new classes", "ms", 1e3),
    "evaluate": ("evaluation, {images:.0f} images", "ms", 1e3),
    "run": ("whole run", "s", 1),
    "run_train": ("  of it training, compiled", "s", 1),
    "run_exemplars": ("  of it exemplars", "s", 1),
    "run_evaluate": ("  of it evaluation", "s", 1),
    "run_rest": ("  of it loading and saving", "s", 1),
    "host_memory": ("peak host memory", "MB", 1 / MB),
    "device_memory": ("peak device memory", "MB", 1 / MB),
}
RATIO = (
    "ratio = PyTorch's time (or memory) / JAX's: above 1, JAX is faster (or smaller). "
    "Medians, in brackets the least and the most; ms, s, MB = 2**20 bytes."
)


def about(name: str, job: Job, sides: dict[str, dict], command: list[str], **counts: int) -> dict:
    """What was measured, where, and by which versions.

    name: of the config's file. sides: what each says of itself. counts: of repeats and the like.
    """
    return {
        "config": name,
        "method": job.method,
        "backbone": job.backbone,
        "dataset": job.dataset["name"],
        "tasks": len(job.tasks),
        "classes": job.tasks[-1].num_seen,
        "epochs": [schedule["epochs"] for schedule in job.schedules],
        "batch_size": job.batch_size,
        "eval_batch_size": job.eval_batch_size,
        "exemplars": job.exemplars,
        **counts,
        "sides": sides,
        "machine": {"cpu": _cpu(), "cpus": os.cpu_count(), "system": platform.platform()},
        "python": platform.python_version(),
        "commit": run_folder.commit(),
        "command": " ".join(command),
        "job": dataclasses.asdict(job),
    }


def row(
    what: str,
    values: dict[str, list[float]],
    images: dict[str, float] | None = None,
    task: int | None = None,
    blocks: int | None = None,
) -> dict:
    """One measurement: by side all repeats (seconds or bytes), median, least, most; the ratio.

    what: a name in KINDS. images: how many each repeat treats. task: counted from 1.
    """
    median = {side: statistics.median(repeats) for side, repeats in values.items()}
    made = {"what": what, "task": task, "blocks": blocks, "values": values, "median": median}
    made["least"] = {side: min(repeats) for side, repeats in values.items()}
    made["most"] = {side: max(repeats) for side, repeats in values.items()}
    if images:
        made["images"] = images
        made["images_per_second"] = {side: images[side] / median[side] for side in median}
    comparable = len(median) == 2 and median["jax"] > 0
    made["ratio"] = median["torch"] / median["jax"] if comparable else None
    return made


def write(folder: pathlib.Path, results: dict) -> None:
    """benchmark.json, table.md and plot.png."""
    write_json(folder / "benchmark.json", results)
    (folder / "table.md").write_text(table(results) + "\n")
    plot(folder / "plot.png", results)


def table(results: dict) -> str:
    """All rows as a Markdown table that reads well as plain text, below what was measured."""
    sides = list(results["about"]["sides"])
    both = len(sides) == 2
    head = ["", *[NAMES[side] for side in sides], *(["ratio"] if both else [])]
    head += [f"{NAMES[side]} images/s" for side in sides]
    lines = [_cells(row, sides, both) for row in results["rows"]]
    lines += _accuracies(results.get("accuracy", {}), sides, len(head))
    return "\n".join(
        [
            *title(results["about"]),
            *([RATIO] if both else [RATIO.partition(". ")[2]]),
            "",
            *markdown(head, lines),
        ]
    )


def markdown(head: list[str], lines: list[list[str]]) -> list[str]:
    """The lines of a Markdown table that reads well as plain text; numbers to the right."""
    widths = [max(len(line[column]) for line in [head, *lines]) for column in range(len(head))]
    rule = ["-" * widths[0], *["-" * (width - 1) + ":" for width in widths[1:]]]
    return [_line(cells, widths) for cells in (head, rule, *lines)]


def title(about: dict) -> list[str]:
    """What was measured, of `about`: lines of Markdown above a table."""
    lines = [
        f"{about['method']} on {about['dataset']} ({about['config']}), {about['backbone']}, "
        f"{about['tasks']} tasks, {about['classes']} classes, batch {about['batch_size']}, "
        f"{about['exemplars']} exemplars",
    ]
    for side, found in about["sides"].items():
        versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
        how = ", ".join(f"{name} {value}" for name, value in found["options"].items())
        lines.append(f"{NAMES[side]}: {found['device']}; {versions}; {how}")
    machine = about["machine"]
    threads = {str(found["threads"]) for found in about["sides"].values()}
    each = " on each side" if len(about["sides"]) > 1 else ""
    lines.append(f"{machine['cpu']}, {' and '.join(sorted(threads))} threads{each}")
    return [line + "  " for line in lines]  # two blanks break a line in Markdown


def _line(cells: list[str], widths: list[int]) -> str:
    first, *rest = zip(cells, widths)
    texts = [first[0].ljust(first[1]), *[cell.rjust(width) for cell, width in rest]]
    return "| " + " | ".join(texts) + " |"


def _cells(row: dict, sides: list[str], both: bool) -> list[str]:
    name, unit, scale = KINDS[row["what"]]
    images = row.get("images", {})
    name = name.format(images=max(images.values(), default=0))
    if row["blocks"]:
        name += f", {row['blocks']} block{'s' * (row['blocks'] > 1)}"
    cells = [f"{name} (task {row['task']})" if row["task"] else name]
    for side in sides:
        median, least, most = (row[key][side] * scale for key in ("median", "least", "most"))
        spread = f" ({number(least)}–{number(most)})" if len(row["values"][side]) > 1 else ""
        cells.append(f"{number(median)} {unit}{spread}")
    if both:
        cells.append("–" if row["ratio"] is None else f"{row['ratio']:.2f}")
    rates = row.get("images_per_second", {})
    return cells + [f"{rates[side]:.0f}" if side in rates else "" for side in sides]


def number(value: float) -> str:
    """Three digits that count."""
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _accuracies(accuracy: dict, sides: list[str], columns: int) -> list[list[str]]:
    """A line per rule of prediction: mean over the runs of the accuracy after each task."""
    lines = []
    rules = dict.fromkeys(rule for runs in accuracy.values() for rule in runs[0])
    for rule in rules:
        cells = [f"accuracy by {rule.replace('_', ' ')}, %"]
        for side in sides:
            by_task = [statistics.mean(v) for v in zip(*[run[rule] for run in accuracy[side]])]
            cells.append(" ".join(f"{value:.1f}" for value in by_task))
        lines.append(cells + [""] * (columns - len(cells)))
    return lines


def plot(path: pathlib.Path, results: dict) -> None:
    """Time of a training step by task with its spread, and the ratios of the last task."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    sides, rows = list(results["about"]["sides"]), results["rows"]
    ratios = {row["what"]: row for row in rows if row["ratio"] and row["what"] != "compile"}
    figure, axes = pyplot.subplots(
        1,
        2 if ratios else 1,
        figsize=(10 if ratios else 5.5, 4),
        layout="constrained",
        squeeze=False,
    )
    steps = [row for row in rows if row["what"] == "train"]
    colours = {"jax": "#0072b2", "torch": "#d55e00"}
    for side in sides:
        tasks = [row["task"] for row in steps]
        median, least, most = (
            [1e3 * row[key][side] for row in steps] for key in ("median", "least", "most")
        )
        axes[0, 0].plot(tasks, median, "o-", color=colours[side], label=NAMES[side])
        axes[0, 0].fill_between(tasks, least, most, color=colours[side], alpha=0.2)
    axes[0, 0].set(xlabel="task", ylabel="training step (ms)", ylim=(0, None), xticks=tasks)
    axes[0, 0].legend(loc="upper left")
    axes[0, 0].grid(alpha=0.3)
    if ratios:
        names = [KINDS[what][0].partition(",")[0].strip() for what in ratios]
        values = [row["ratio"] for row in ratios.values()]
        bars = axes[0, 1].barh(names, [r - 1 for r in values], left=1, color="#56b4e9")
        axes[0, 1].bar_label(bars, [f"{ratio:.2f}" for ratio in values], padding=3)
        axes[0, 1].axvline(1, color="black", linewidth=1)
        axes[0, 1].set(xscale="log", xlabel="PyTorch / JAX (above 1: JAX is faster or smaller)")
        axes[0, 1].invert_yaxis()
        axes[0, 1].margins(x=0.2)
    about = results["about"]
    device = about["sides"][sides[0]]["device"]
    figure.suptitle(f"{about['method']} on {about['dataset']}, {about['backbone']}, {device}")
    figure.savefig(path, dpi=150)
    pyplot.close(figure)


def _cpu() -> str:
    """The CPU's name."""
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(": ", 1)[1] for line in lines if line.startswith("model name"))
    except (OSError, StopIteration, IndexError):
        return platform.processor() or platform.machine()
