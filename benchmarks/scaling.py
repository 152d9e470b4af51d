"""How time and memory grow: with blocks, batch, exemplars, classes and devices; a run's duration.

  python -m benchmarks.scaling --config configs/cifar_b0i10.py
  python -m benchmarks.scaling --config configs/cifar_b0i10.py:der --axes blocks,estimate
  python -m benchmarks.scaling --config configs/cifar_b0i10.py --axes batch --batch 64,256,1024

Axes: blocks (the tasks of the config's stream), batch (images per step and per forward pass),
exemplars and classes (herding, evaluation), devices (the same global batch divided among more of
them; on a CPU virtual ones), estimate (the whole schedule, from the steps measured). Images are
made up in the dataset's numbers, so that it need not be there. Saves scaling.json (every repeat),
table.md and a plot for each axis in --out, and prints the table.
"""

import statistics
import sys

from benchmarks import scaling_plots, scaling_report, scaling_settings
from benchmarks.processes import Process, SideFailed, exit_code, prepare_folder, say
from benchmarks.scaling_estimate import estimate
from benchmarks.scaling_points import Point
from benchmarks.scaling_settings import Wanted
from memo_jax.errors import UserError


def main(argv: list[str]) -> int:
    """Measures and reports; returns the exit code: 0 done, 1 a measurement failed, 2 bad input."""
    return exit_code(lambda: scale(scaling_settings.parse(argv, __doc__), argv))


def scale(wanted: Wanted, argv: list[str]) -> None:
    """Measures axis by axis and writes what there is after each.

    A value that fails, as for want of memory, ends its axis but not the others; SideFailed is
    raised at the end.
    """
    prepare_folder(wanted.out, ["scaling"])
    with Processes() as processes:
        about = processes.of(wanted.stream.point("estimate", 1)).about
        agenda = scaling_settings.settle(wanted, about)
        results = scaling_report.start(wanted, agenda, about, argv)
        failed = []
        for axis, points in agenda.points.items():
            rows = results["axes"][axis] = []
            try:
                for point in points:
                    rows.append(measure(processes.of(point), point, agenda.repeats))
            except (UserError, SideFailed) as error:
                processes.stop()
                failed.append(f"{axis} {point.value}: {error}")
            if "estimate" in wanted.axes and axis in ("blocks", "estimate"):
                results["estimate"] = of_run(wanted, rows)
            results["failed"] = failed
            scaling_report.write(wanted.out, results)
    scaling_plots.plot(wanted.out, results)
    print(scaling_report.text(results))
    print(f"\nevery repeat: {wanted.out}/scaling.json, plots: {wanted.out}/*.png")
    if failed:
        raise SideFailed("; ".join(failed))


def measure(process: Process, point: Point, repeats: int) -> dict:
    """All sections of a point: seconds of each repeat, and what is held, in bytes.

    peak_device: None where the device does not tell it, and where it held more before.
    """
    before = process.ask("peak")["device_bytes"]
    measured, held = {}, {}
    for phase in point.phases:
        say(f"{point.axis} {point.value}: {phase}")
        made = process.ask("prepare", phase=phase, task=point.task.index)
        steps = made["steps"]
        seconds = [process.ask("measure")["seconds"] / steps for _ in range(repeats)]
        median, images = statistics.median(seconds), made["images"] / steps
        measured[phase] = {
            "seconds": seconds,
            "median": median,
            "least": min(seconds),
            "most": max(seconds),
            "images": images,
            "images_per_second": images / median,
            "compile_seconds": made["compile_seconds"],
        }
        held |= made["memory"]
    peak = process.ask("peak")["device_bytes"]
    job, task = point.job, point.task
    return {
        "value": point.value,
        "task": task.index + 1,
        "blocks": job.blocks(task),
        "classes": task.num_seen,
        "new_classes": task.num_new,
        "batch_size": job.batch_size,
        "eval_batch_size": job.eval_batch_size,
        "exemplars": job.exemplars,
        "devices": point.speed["devices"] or process.about["devices"],
        "measured": measured,
        "bytes": {**held, "peak_device": peak if peak and peak > before else None},
    }


def of_run(wanted: Wanted, rows: list[dict]) -> dict | None:
    """The estimate of the config's whole run, None if its last task was not measured."""
    stream = wanted.stream
    of_it = [row for row in rows if row["value"] <= len(stream.plan.tasks)]
    if not of_it or of_it[-1]["value"] < len(stream.plan.tasks):
        return None
    return estimate(stream.job, stream.train_sizes, stream.test_sizes, of_it)


class Processes:
    """The process that measures, one at a time.

    A new one is started for another number of virtual devices, and for another axis where the
    device tells the most that it has held, which then is of this axis; values rise along it.
    """

    def __init__(self):
        self._process, self._kind, self._about = None, None, {}

    def __enter__(self) -> "Processes":
        return self

    def __exit__(self, *_) -> None:
        self.stop()

    def of(self, point: Point) -> Process:
        """One that is about to measure `point`."""
        kind = (self._virtual(point), point.axis if self._about.get("tells_peak") else None)
        if self._process and kind == self._kind:
            self._process.begin(point)
            return self._process
        self.stop()
        self._process, self._kind = Process("scaling", point, **kind[0]), kind
        self._about = self._about or self._process.about
        return self._process

    def stop(self) -> None:
        """Ends it, whatever it is doing."""
        if self._process:
            self._process.stop()
        self._process = None

    def _virtual(self, point: Point) -> dict[str, str]:
        """The environment in which there are as many CPU devices as `point` asks for."""
        count, about = point.speed["devices"], self._about
        if not count or about["platform"] != "cpu" or count == about["devices"]:
            return {}
        return {"JAX_NUM_CPU_DEVICES": str(count)}


if __name__ == "__main__":
    sys.exit(main(sys.argv))
