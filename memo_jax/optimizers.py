"""Learning-rate schedules and the optimizer, as Optax transformations."""

import dataclasses
import math

import jax
import optax

from memo_jax.errors import UserError


@dataclasses.dataclass(frozen=True)
class Schedule:
    """How one task is trained.

    kind: "steps" multiplies the rate by `gamma` after each of `milestones` (epochs); "cosine"
    lets it fall to zero along half a cosine. weight_decay: L2, added to the gradient.
    """

    epochs: int
    milestones: tuple[int, ...] = ()
    weight_decay: float = 5e-4
    learning_rate: float = 0.1
    gamma: float = 0.1
    momentum: float = 0.9
    kind: str = "steps"

    def __post_init__(self):
        """Raises UserError for settings that make no schedule."""
        if self.kind not in ("steps", "cosine"):
            raise UserError(f"schedule: expected kind 'steps' or 'cosine', found {self.kind!r}")
        if not _is_number(self.epochs, int) or self.epochs < 1:
            raise UserError(f"schedule: expected at least 1 epoch, found {self.epochs!r}")
        if not _is_number(self.learning_rate) or self.learning_rate <= 0:
            raise UserError(f"schedule: expected a learning rate > 0, found {self.learning_rate!r}")
        if not _is_number(self.weight_decay) or self.weight_decay < 0:
            raise UserError(f"schedule: expected a decay >= 0, found {self.weight_decay!r}")
        if not all(_is_number(m, int) and m > 0 for m in self.milestones):
            raise UserError(
                f"schedule: expected milestones like (80, 150), found {self.milestones!r}"
            )
        rising = sorted(set(self.milestones)) == list(self.milestones)
        if not rising or max(self.milestones, default=0) >= self.epochs:
            raise UserError(
                f"schedule: expected rising milestones below {self.epochs} epochs, found "
                f"{self.milestones}; set milestones that fit the epochs"
            )
        if self.kind == "cosine" and self.milestones:
            raise UserError(
                f"schedule: a cosine has no milestones, found {self.milestones}; "
                f"leave them out or choose another schedule.name"
            )


def _is_number(value, kind: type = float) -> bool:
    number = isinstance(value, (int, kind)) and not isinstance(value, bool)
    return number and math.isfinite(value)


def learning_rate(schedule: Schedule, steps_per_epoch: int) -> optax.Schedule:
    """step -> learning rate."""
    if schedule.kind == "cosine":
        return optax.cosine_decay_schedule(
            schedule.learning_rate, schedule.epochs * steps_per_epoch
        )
    boundaries = {epoch * steps_per_epoch: schedule.gamma for epoch in schedule.milestones}
    return optax.piecewise_constant_schedule(schedule.learning_rate, boundaries)


def sgd(schedule: Schedule, steps_per_epoch: int, learns) -> optax.GradientTransformation:
    """PyTorch's SGD for the leaves that learn; frozen leaves get no update and hold no momentum.

    The decay is added to the gradient before momentum. `learns` is the tree of freezing.mask.
    """
    moving = optax.chain(
        optax.add_decayed_weights(schedule.weight_decay),
        optax.sgd(learning_rate(schedule, steps_per_epoch), momentum=schedule.momentum),
    )
    labels = jax.tree.map(lambda leaf: "learns" if leaf else "frozen", learns)
    return optax.partition({"learns": moving, "frozen": optax.set_to_zero()}, labels)
