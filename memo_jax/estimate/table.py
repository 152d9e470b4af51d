"""The estimate of a run as a table for people."""

from collections.abc import Iterator, Sequence

from memo_jax import parallel
from memo_jax.budget import MB
from memo_jax.estimate.needs import Need
from memo_jax.estimate.room import Room
from memo_jax.logging import say, say_table

COLUMNS = ("task", "classes", "new images", "exemplars", "epochs", "steps/epoch", "steps")
COLUMNS += ("network", "images", "step", "evaluation", "peak")
NOTES = (
    "MB (2**20 bytes) on each device. network: parameters, statistics and optimizer, and the "
    "network before the task;",
    "images: exemplars, pool and test images; step, evaluation: what they take beside all that",
)


def show(needs: Sequence[Need], room: Room) -> None:
    """Prints a line for each task, and the peak beside the memory there is."""
    say("")
    say_table([COLUMNS, *(_row(need) for need in needs)], right=COLUMNS)
    for line in _words(needs, room):
        say(line)


def _row(need: Need) -> tuple[str, ...]:
    arrays, task = need.arrays, need.arrays.task
    about = "" if need.compiled else "~"
    counts = (arrays.new, arrays.kept, need.epochs, need.steps_per_epoch, need.steps)
    return (
        str(task.index + 1),
        f"{task.num_new} of {task.num_seen}",
        *(f"{count:,}" for count in counts),
        *(f"{size / MB:,.1f}" for size in (arrays.network, arrays.images)),
        *(f"{about}{size / MB:,.1f}" for size in (need.programs.step, need.evaluation, need.peak)),
    )


def _words(needs: Sequence[Need], room: Room) -> Iterator[str]:
    yield from NOTES
    made = f"as compiled for {parallel.describe()}"
    if not all(need.compiled for need in needs):
        made += "; ~ interpolated between tasks that were compiled"
    yield made
    on_host = [str(need.arrays.task.index + 1) for need in needs if need.arrays.streamed]
    if on_host:
        yield f"new images stay on the host in the tasks {', '.join(on_host)} (dataset.streaming)"
    epochs, steps = (sum(getattr(need, name) for need in needs) for name in ("epochs", "steps"))
    yield f"in all {epochs:,} epochs, {steps:,} steps"
    worst = max(needs, key=lambda need: need.peak)
    where = f"in {worst.phase} of task {worst.arrays.task.index + 1}"
    yield f"peak, {where}: {room.words(worst.peak)} of {room.found}"
