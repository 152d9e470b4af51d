"""What every task needs, arrays and programs together; some are compiled, the rest interpolated."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from memo_jax.estimate import programs
from memo_jax.estimate.arrays import Arrays
from memo_jax.estimate.programs import Programs
from memo_jax.logging import say
from memo_jax.problems import Problems


@dataclasses.dataclass(frozen=True)
class Need:
    """Bytes on each device in a task. compiled: False where the programs are interpolated."""

    arrays: Arrays
    programs: Programs
    compiled: bool
    epochs: int
    steps_per_epoch: int

    @property
    def steps(self) -> int:
        return self.epochs * self.steps_per_epoch

    @property
    def training(self) -> int:
        """While a training step runs."""
        return self.arrays.training + self.programs.step

    @property
    def evaluation(self) -> int:
        """What choosing exemplars and evaluating take beside the arrays."""
        arrays, forward = self.arrays, self.programs.forward
        if not arrays.slots:
            return forward
        features, chosen = arrays.features(arrays.pool), arrays.features(arrays.slots)
        # The features of all batches, of the pool and of what is filled up: three times the same.
        joined = 2 * features
        refreshed = arrays.memory + chosen  # beside the old memory
        choosing = features + max(forward, joined, self.programs.picking, refreshed)
        return max(choosing, arrays.memory + forward)

    @property
    def phases(self) -> dict[str, int]:
        """The most at one time, by what is done then."""
        return {
            "training": self.training,
            "evaluation": self.arrays.evaluating + self.evaluation,
        }

    @property
    def phase(self) -> str:
        """In which the peak is."""
        return max(self.phases, key=self.phases.get)

    @property
    def peak(self) -> int:
        return self.phases[self.phase]


def by_task(problems: Problems, arrays: Sequence[Arrays]) -> list[Need]:
    """The needs of tasks. Compiled are those of the first two and the last and where the peak is.

    From the second task to the last each adds the same to the network, so that what a step takes
    grows linearly.
    """
    last, compiled = len(arrays) - 1, {}
    wanted = sorted({0, min(1, last), last})
    while wanted:
        for place in wanted:
            say(f"compiling the steps of task {arrays[place].task.index + 1} ...")
            compiled[place] = programs.of_task(problems, arrays[place])
        found = [_need(problems, each, place, compiled) for place, each in enumerate(arrays)]
        peak = max(range(len(found)), key=lambda place: found[place].peak)
        wanted = [] if peak in compiled else [peak]
    return found


def _need(problems: Problems, arrays: Arrays, place: int, compiled: Mapping[int, Programs]) -> Need:
    there = sorted(compiled)
    between = {
        field.name: round(
            np.interp(place, there, [getattr(compiled[p], field.name) for p in there])
        )
        for field in dataclasses.fields(Programs)
    }
    return Need(
        arrays=arrays,
        programs=compiled.get(place) or Programs(**between),
        compiled=place in compiled,
        epochs=problems.plan.schedule(arrays.task).epochs if arrays.trained else 0,
        steps_per_epoch=-(-arrays.pool // problems.config.schedule.batch_size),
    )
