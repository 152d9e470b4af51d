"""The stream of tasks: which classes come when."""

import dataclasses

import numpy as np

from memo_jax.errors import UserError


@dataclasses.dataclass(frozen=True)
class Task:
    """One step of the stream, learning the classes first, ..., stop - 1.

    Labels are places in the class order, so the classes seen so far are always 0, ..., stop - 1.
    """

    index: int
    first: int
    stop: int

    @property
    def is_base(self) -> bool:
        return self.index == 0

    @property
    def num_new(self) -> int:
        return self.stop - self.first

    @property
    def num_old(self) -> int:
        return self.first

    @property
    def num_seen(self) -> int:
        return self.stop


def class_order(num_classes: int, seed: int) -> np.ndarray:
    """The order in which classes arrive, int `[K]`: place -> original label.

    Legacy `RandomState`, because every published CIL result with seed 1993 uses its permutation.
    """
    return np.random.RandomState(seed).permutation(num_classes)


def split(num_classes: int, base: int, increment: int) -> tuple[Task, ...]:
    """Splits `num_classes` into Base-`base` Inc-`increment` tasks; a remainder comes last.

    base 0 means that the first task has `increment` classes as every other.
    Raises UserError for sizes that leave no task or exceed the classes there are.
    """
    if increment < 1 or base < 0:
        raise UserError(
            f"protocol: expected base >= 0 and increment >= 1, found base {base} and increment "
            f"{increment}; set --config.protocol.base and --config.protocol.increment"
        )
    if max(base, increment if base == 0 else 0) > num_classes:
        raise UserError(
            f"protocol: the first task has {base or increment} classes but the dataset only "
            f"{num_classes}; lower --config.protocol.{'base' if base else 'increment'}"
        )
    stops = list(range(base or increment, num_classes, increment)) + [num_classes]
    firsts = [0, *stops[:-1]]
    return tuple(Task(i, first, stop) for i, (first, stop) in enumerate(zip(firsts, stops)))


def setting_name(base: int, increment: int) -> str:
    """The field's short name of a protocol: `b50i10`."""
    return f"b{base}i{increment}"
