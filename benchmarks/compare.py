"""JAX and PyTorch side by side: the same program, measured in turn on the same machine.

For each task, with as many blocks as it has then: the training step with its images per second
and its compilation, and the forward pass; after the last one herding and evaluation. Then whole
runs, each in a new process: seconds, accuracy, peak memory. Saves benchmark.json (every repeat),
table.md and plot.png in --out, and prints the table: median, spread, ratio.

  python -m benchmarks.compare --config configs/digits_b0i2.py --tasks 2 --epochs 1
  python -m benchmarks.compare --config configs/cifar_b0i10.py:der --runs 0 --repeats 9
  python -m benchmarks.compare --config configs/cifar_b0i10.py --jax-only

Both sides use every CPU this process may use (taskset limits it), or the one GPU they see.
"""

import contextlib
import sys
import time
from collections.abc import Iterator

from benchmarks import report, settings
from benchmarks.processes import NAMES, Process, exit_code, prepare_folder, say
from benchmarks.settings import Settings
from memo_jax.errors import UserError
from memo_jax.protocol import Task

PAUSE = 0.1
"""Seconds before each measurement, in which the other side's threads go to sleep."""


def main(argv: list[str]) -> int:
    """Measures and reports; returns the exit code: 0 done, 1 a side failed, 2 bad input."""
    return exit_code(lambda: compare(settings.parse(argv, __doc__), argv))


def compare(wanted: Settings, argv: list[str]) -> None:
    """Measures sections, then whole runs; writes what there is after each part."""
    prepare_folder(wanted.out, wanted.sides)
    with started(wanted) as sides:
        about = report.about(
            wanted.name,
            wanted.job,
            {side: process.about for side, process in sides.items()},
            ["python -m benchmarks.compare", *argv[1:]],
            repeats=wanted.repeats,
            runs=wanted.runs,
        )
        results = {"about": about, "rows": []}
        try:
            for rows in sections(wanted, sides):
                results["rows"] += rows
        finally:  # also what was measured before a stop
            if results["rows"]:
                report.write(wanted.out, results)
    if wanted.runs:
        rows, results["accuracy"] = whole_runs(wanted)
        results["rows"] += rows
        report.write(wanted.out, results)
    print(report.table(results))
    print(f"\nevery repeat: {wanted.out}/benchmark.json, plot: {wanted.out}/plot.png")


@contextlib.contextmanager
def started(wanted: Settings) -> Iterator[dict[str, Process]]:
    """A process for each side, which all end with the block.

    Raises UserError if the sides would not compute on the same device.
    """
    with contextlib.ExitStack() as stack:
        sides = {s: stack.enter_context(Process(s, wanted)) for s in wanted.sides}
        found = {NAMES[s]: f"{p.about['devices']} {p.about['platform']}" for s, p in sides.items()}
        if len(set(found.values())) > 1:
            listed = ", ".join(f"{side} on {device}" for side, device in found.items())
            raise UserError(
                f"expected both sides on the same device, found {listed}; show both one GPU "
                f"(CUDA_VISIBLE_DEVICES=0), none (CUDA_VISIBLE_DEVICES= JAX_PLATFORMS=cpu), or "
                f"measure one: --jax-only, --torch-only"
            )
        yield sides


def sections(wanted: Settings, sides: dict[str, Process]) -> Iterator[list[dict]]:
    """The rows of every section of every task."""
    for task in wanted.job.tasks:
        phases = ["train", "forward"]
        if task == wanted.job.tasks[-1]:
            phases += ["herding", "evaluate"] if wanted.job.exemplars else ["evaluate"]
        for phase in phases:
            say(f"task {task.index + 1} of {len(wanted.job.tasks)}: {phase}")
            yield section(wanted, sides, phase, task)


def section(wanted: Settings, sides: dict[str, Process], phase: str, task: Task) -> list[dict]:
    """Repeats of one section, by turns; the row of training brings that of its compilation."""
    made = {s: p.ask("prepare", phase=phase, task=task.index) for s, p in sides.items()}
    values = {side: [] for side in sides}
    for repeat in range(wanted.repeats):
        for side in list(sides) if repeat % 2 == 0 else reversed(sides):
            time.sleep(PAUSE)
            values[side].append(sides[side].ask("measure")["seconds"] / made[side]["steps"])
    where = {"task": task.index + 1, "blocks": wanted.job.blocks(task)}
    images = {side: found["images"] / found["steps"] for side, found in made.items()}
    rows = [report.row(phase, values, images, **where)]
    if phase == "train":
        seconds = {side: [found["compile_seconds"]] for side, found in made.items()}
        rows.append(report.row("compile", seconds, **where))
    return rows


def whole_runs(wanted: Settings) -> tuple[list[dict], dict]:
    """Rows of whole runs, and by side for every run the accuracies after each task by rule."""
    runs = {side: [] for side in wanted.sides}
    for number in range(wanted.runs):
        for side in wanted.sides:
            say(f"whole run {number + 1} of {wanted.runs}: {NAMES[side]}")
            with Process(side, wanted) as process:
                runs[side].append(process.ask("run"))

    def values(get) -> dict[str, list]:
        return {side: [get(run) for run in of_side] for side, of_side in runs.items()}

    rows = [report.row("run", values(lambda run: run["seconds"]))]
    for phase in ("train", "exemplars", "evaluate", "rest"):
        rows.append(report.row(f"run_{phase}", values(lambda run, p=phase: run["phases"][p])))
    rows.append(report.row("host_memory", values(lambda run: run["host_bytes"])))
    device = values(lambda run: run["device_bytes"])
    if not any(None in values for values in device.values()):
        rows.append(report.row("device_memory", device))
    return rows, values(lambda run: run["accuracy"])


if __name__ == "__main__":
    sys.exit(main(sys.argv))
