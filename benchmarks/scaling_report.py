"""The results of benchmarks.scaling as JSON and as Markdown tables."""

import pathlib

from benchmarks import report
from benchmarks.scaling_plots import BYTES, NAMES, duration, virtual
from benchmarks.scaling_settings import Agenda, Wanted
from memo_jax.logging import write_json

HEADINGS = {
    "blocks": "Number of blocks: task n of the stream has n of them, and the classes seen by then",
    "batch": "Images in a training step and in a forward pass, in the second of two tasks",
    "exemplars": "Exemplars of all classes, after the second of two tasks",
    "classes": "Classes seen after the second of two tasks",
    "devices": "Devices that share the batch, in the second of two tasks",
    "estimate": "Tasks that the estimate is made from",
}
NOTE = (
    "Images are random bytes in the numbers of the dataset. Medians, in brackets the least and "
    "the most; MB = 2**20 bytes, temporary and total those of a training step by the compiler's "
    "analysis."
)
VIRTUAL = (
    "These are virtual devices of one CPU, which share its cores: no speed-up is to be expected, "
    "what shows is the cost of dividing the work."
)
QUANTITIES = {
    "seconds": "every repeat: of a training step, a forward pass, an evaluated batch, a herding of "
    "the new classes, the class means of all exemplars",
    "images_per_second": "images of one of these / median of the repeats",
    "compile_seconds": "to compile, and by what the first time was slower than the second",
    "bytes": "parameters: of trunk and blocks; training_state: with heads, statistics, momentum; "
    "pool: images and labels of the task; exemplars: slots of the memory; step_*: of a training "
    "step by the compiler's analysis, on each device; peak_device: the most the device has held",
    "estimate": "seconds of the whole schedule, linear between the tasks measured; without "
    "loading, logging and saving",
}


def start(wanted: Wanted, agenda: Agenda, about: dict, argv: list[str]) -> dict:
    """The results before anything is measured; about: what the side says of itself."""
    return {
        "about": report.about(
            wanted.name,
            wanted.stream.job,
            {"scaling": about},
            ["python -m benchmarks.scaling", *argv[1:]],
            repeats=agenda.repeats,
            steps=wanted.steps,
        ),
        "quantities": QUANTITIES,
        "axes": {},
        "estimate": None,
        "left_out": agenda.left_out,
        "failed": [],
    }


def write(folder: pathlib.Path, results: dict) -> None:
    """scaling.json and table.md."""
    write_json(folder / "scaling.json", results)
    (folder / "table.md").write_text(text(results) + "\n")


def text(results: dict) -> str:
    """All tables, below what was measured."""
    about = results["about"]
    lines = [*report.title(about), NOTE]
    for axis, rows in results["axes"].items():
        note = [VIRTUAL] if axis == "devices" and virtual(about) else []
        if rows:
            lines += ["", f"**{HEADINGS[axis]}.**", *note, "", *_axis(axis, rows)]
    if results["estimate"]:
        lines += ["", *_estimate(results["estimate"])]
    for title, said in (("Left out", results["left_out"]), ("Failed", results["failed"])):
        lines += ["", f"**{title}:**", "", *[f"- {line}" for line in said]] if said else []
    return "\n".join(lines)


def _axis(axis: str, rows: list[dict]) -> list[str]:
    """A table with a line for each value."""
    shown = [name for name in BYTES if any(row["bytes"].get(name) for row in rows)]
    head = ["task" if axis == "estimate" else axis]
    for phase in rows[0]["measured"]:
        head.append(f"{NAMES[phase]}, ms")
        head += ["images/s"] if phase in ("train", "forward") else []
        head += ["compilation, s"] if phase == "train" else []
    head += [f"{BYTES[name]}, MB" for name in shown]
    return report.markdown(head, [_cells(row, shown) for row in rows])


def _cells(row: dict, shown: list[str]) -> list[str]:
    number = report.number
    cells = [str(row["value"])]
    for phase, found in row["measured"].items():
        median, least, most = (number(1e3 * found[key]) for key in ("median", "least", "most"))
        spread = f" ({least}–{most})" if len(found["seconds"]) > 1 else ""
        cells.append(median + spread)
        if phase in ("train", "forward"):
            cells.append(number(found["images_per_second"]))
        if phase == "train":
            cells.append(number(found["compile_seconds"]))
    held = [row["bytes"].get(name) for name in shown]
    return cells + ["–" if size is None else number(size / report.MB) for size in held]


def _estimate(found: dict) -> list[str]:
    """The estimated run: a line for each task, and their sum."""
    phases = list(found["tasks"][0]["seconds"])
    head = ["task", "epochs", "steps per epoch", "training images", *phases, "all"]
    lines = [
        [
            *[str(task[k]) for k in ("task", "epochs", "steps_per_epoch", "training_images")],
            *[duration(task["seconds"][phase]) for phase in phases],
            duration(sum(task["seconds"].values())),
        ]
        for task in found["tasks"]
    ]
    total = found["seconds"]
    lines.append(["all", "", "", "", *[duration(total[p]) for p in (*phases, "total")]])
    measured = ", ".join(map(str, found["measured_tasks"]))
    return [
        f"**Estimate of the whole run: {duration(total['total'])}**, from the steps of tasks "
        f"{measured}, linear between them; without loading, logging and saving.",
        "",
        *report.markdown(head, lines),
    ]
