"""Refuses what does not fit into the memory, and says which batch size would."""

from collections.abc import Callable, Sequence

from memo_jax.errors import UserError
from memo_jax.estimate import programs
from memo_jax.estimate.arrays import Arrays
from memo_jax.estimate.needs import Need
from memo_jax.estimate.room import Room
from memo_jax.problems import Problems

SECANTS = 5
"""Guesses along a line before an interval is only halved."""


def expect_arrays(arrays: Sequence[Arrays], room: Room) -> None:
    """Raises UserError for the first task whose arrays alone exceed the memory."""
    for each in arrays:
        if not room.has(each.training):
            raise UserError(
                f"task {each.task.index + 1}: expected room for {room.words(each.training)}, for "
                f"networks and images alone, found {room.found}; no schedule.batch_size fits: take "
                f"fewer exemplars, smaller images or a smaller backbone"
            )


def expect_all(problems: Problems, needs: Sequence[Need], room: Room) -> None:
    """Raises UserError for the task that exceeds the memory most, with the batch size that fits."""
    worst = max(needs, key=lambda need: need.phases["evaluation"])
    if not room.has(worst.phases["evaluation"]):
        raise UserError(
            f"{_line(worst, 'evaluation', room)}; no schedule.batch_size fits: lower "
            f"--config.train.eval_batch_size or the number of exemplars"
        )
    worst = max(needs, key=lambda need: need.training)
    if room.has(worst.training):
        return
    batch = largest_batch(problems, needs, room)
    remedy = f"the largest that fits is --config.schedule.batch_size={batch}"
    if not batch:
        remedy = (
            f"no schedule.batch_size fits, not even {problems.mesh.size}: take smaller images or a "
            f"smaller backbone"
        )
    raise UserError(f"{_line(worst, 'training', room)}; {remedy}")


def _line(need: Need, phase: str, room: Room) -> str:
    return (
        f"task {need.arrays.task.index + 1}: expected room for {room.words(need.phases[phase])}, "
        f"in {phase}, found {room.found}"
    )


def largest_batch(problems: Problems, needs: Sequence[Need], room: Room) -> int:
    """The largest batch size with which training fits, 0 if none; the present one does not.

    Found by compiling the steps of those tasks that do not fit.
    """
    exceeding = [need for need in needs if need.compiled and not room.has(need.training)]
    exceeding.sort(key=lambda need: need.training, reverse=True)

    def needed(batch: int) -> int:
        most = 0
        for need in exceeding:
            taken = programs.step(problems, need.arrays, batch)
            most = max(most, room.needed(need.arrays.training + taken))
            if most > room.size:
                break
        return most

    present = problems.config.schedule.batch_size
    above = present, room.needed(exceeding[0].training)
    return largest(needed, room.size, problems.mesh.size, above)


def largest(needed: Callable[[int], int], size: int, unit: int, above: tuple[int, int]) -> int:
    """The largest multiple of `unit` that needs at most `size`, 0 if none does.

    needed: rises, nearly along a line, so that three calls are usual. above: a multiple that needs
    more, and what it needs.
    """
    high, at_high = above
    if high == unit or (at_low := needed(unit)) > size:
        return 0
    low, guesses = unit, 0
    while high - low > unit:
        reach = (high - low) // 2
        if guesses < SECANTS:
            reach = (high - low) * (size - at_low) // (at_high - at_low)
        guess = min(max(low + reach // unit * unit, low + unit), high - unit)
        at_guess, guesses = needed(guess), guesses + 1
        if at_guess <= size:
            low, at_low = guess, at_guess
        else:
            high, at_high = guess, at_guess
    return low
