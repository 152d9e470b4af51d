"""What a run writes for people and programs: metrics.jsonl, summary.json, TensorBoard, progress.

Only the lead process writes.
"""

import json
import os
import pathlib
import sys
import time
from collections.abc import Collection, Sequence

import jax
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from memo_jax import parallel


def write_json(path: pathlib.Path, content: dict) -> None:
    """Replaces `path` atomically, so a reader never sees half a file."""
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(content, indent=2) + "\n")
    os.replace(temporary, path)


def say(line: str) -> None:
    """Prints a line at once, from the lead process only."""
    if parallel.is_lead():
        print(line, flush=True)


def say_table(rows: Sequence[Sequence[str]], right: Collection[str]) -> None:
    """Prints rows in columns, of which the first names them; those in `right` are set right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        cells = [
            text.rjust(width) if name in right else text.ljust(width)
            for name, text, width in zip(rows[0], row, widths)
        ]
        say("  " + "  ".join(cells).rstrip())


class RunLog:
    """metrics.jsonl and TensorBoard events of one run folder.

    `resume` drops what was logged after the point a run goes on from, so that an interrupted and
    resumed run leaves each line once.
    """

    def __init__(self, workdir: pathlib.Path):
        self._path = workdir / "metrics.jsonl"
        self._folder = workdir / "tensorboard"
        self._writer = None

    def resume(self, task: int, epochs_done: int) -> None:
        """Keeps the lines of the tasks before `task` and of its first `epochs_done` epochs."""
        if not parallel.is_lead() or not self._path.exists():
            return
        kept = []
        for line in self._path.read_text().splitlines():
            try:
                row = json.loads(line)
            except json.JSONDecodeError:
                continue  # the torn last line of a killed run
            before = row["task"] < task
            if before or (row["task"] == task and row.get("epoch", 10**9) <= epochs_done):
                kept.append(line)
        temporary = self._path.with_suffix(".tmp")
        temporary.write_text("".join(line + "\n" for line in kept))
        os.replace(temporary, self._path)

    def write(self, kind: str, row: dict, step: int) -> None:
        """Appends a line of a kind ("epoch", "task") and its plain numbers to TensorBoard."""
        if not parallel.is_lead():
            return
        with self._path.open("a") as file:
            file.write(json.dumps({"kind": kind, **row}) + "\n")
        if self._writer is None:
            from tensorboardX import SummaryWriter

            # Events of this run at later steps, from before an interruption, are void.
            self._writer = SummaryWriter(str(self._folder), purge_step=step)
        for name, value in row.items():
            if isinstance(value, float):
                self._writer.add_scalar(f"{kind}/{name}", value, step)

    def flush(self) -> None:
        """Makes sure that what was written survives a kill."""
        if self._writer is not None:
            self._writer.flush()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


class TaskProgress:
    """Loss, accuracy and time left of one task: a bar on a terminal, a few lines elsewhere."""

    def __init__(self, title: str, epochs: int):
        self._title, self._epochs = title, epochs
        self._said = time.monotonic()
        self._bar = None
        console = Console(stderr=True)
        if parallel.is_lead() and console.is_terminal:
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(bar_width=16),
                TextColumn("{task.fields[state]}"),
                TimeRemainingColumn(),
                console=console,
                transient=True,
            )

    def __enter__(self) -> "TaskProgress":
        if self._bar:
            self._bar.start()
            self._id = self._bar.add_task(self._title, total=None, state="compiling")
        return self

    def __exit__(self, *_) -> None:
        if self._bar:
            self._bar.stop()

    def step(self, step: int, total: int) -> None:
        """Moves the bar to `step` of `total` steps."""
        if self._bar:
            self._bar.update(self._id, completed=step, total=total)

    def epoch(self, number: int, means: dict[str, float]) -> None:
        """Shows the means of epoch `number`, counted from 0; a line a minute without a terminal."""
        state = f"epoch {number + 1}/{self._epochs} loss {means['loss']:.3f}"
        state += f" accuracy {means['accuracy']:.1f}%"
        if self._bar:
            self._bar.update(self._id, state=state)
        elif parallel.is_lead() and time.monotonic() - self._said > 60:
            self._said = time.monotonic()
            print(f"  {self._title} {state}", file=sys.stderr, flush=True)


class EpochTrace:
    """Writes JAX's trace of the second epoch that is run of a task: the first holds warming up.

    A task of one epoch, or stopped in its second, leaves none.
    """

    def __init__(self, folder: pathlib.Path, wanted: bool):
        self._folder, self._waiting = folder, wanted and parallel.is_lead()
        self._running = False

    def __enter__(self) -> "EpochTrace":
        return self

    def __exit__(self, *_) -> None:
        if self._running:  # or the next trace of this process could not start
            jax.profiler.stop_trace()

    def epoch_done(self) -> None:
        """To be called after every epoch, when all else that follows it is done."""
        if self._running:
            jax.profiler.stop_trace()
            self._running = False
        elif self._waiting:
            jax.profiler.start_trace(str(self._folder))
            self._running, self._waiting = True, False
