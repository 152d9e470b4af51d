"""A method is a value: what grows, what learns, which loss, and what follows the training.

The base task is the same for all methods: plain cross-entropy on everything, no rectification.
"""

import dataclasses
from collections.abc import Callable

import jax

from memo_jax import heads, losses
from memo_jax.network import Outputs, Variables
from memo_jax.optimizers import Schedule
from memo_jax.protocol import Task

Terms = dict[str, jax.Array]
"""Per-example loss terms `[B]`; "loss" is the one that is minimised, the others are reported."""


@dataclasses.dataclass(frozen=True)
class Options:
    """The settings of config.method, resolved; each method reads those that concern it."""

    alpha_aux: float
    train_trunk: bool
    train_old_blocks: bool
    block_init: str
    temperature: float = 2.0
    distill_weight: str = "auto"


Loss = Callable[[Outputs, jax.Array, Outputs | None, Task, Options], Terms]
"""(outputs, labels `[B]`, the teacher's outputs or None, task, options) -> terms."""


def cross_entropy(
    outputs: Outputs, labels: jax.Array, teacher: Outputs | None, task: Task, options: Options
) -> Terms:
    """Plain cross-entropy of the head: the base task of every method."""
    return {"loss": losses.cross_entropy(outputs.logits, labels)}


def align_weights(variables: Variables, task: Task) -> Variables:
    """Weight aligning of the head after a task (see heads.align)."""
    params = variables["params"]
    return {**variables, "params": {**params, "head": heads.align(params["head"], task.num_old)}}


def leave(variables: Variables, task: Task) -> Variables:
    """No rectification."""
    return variables


@dataclasses.dataclass(frozen=True)
class Method:
    """How a method differs from the others, from the second task on.

    grows: "nothing", "last_stage" (a copy of the block after the cut) or "backbone".
    loss, trains: the loss, and the parameter paths that learn (freezing.mask).
    published: the schedule of the later tasks in the authors' published code.
    rectify: applied once to the trained variables. teacher: whether the loss sees the outputs of
    the network as it was before the task. keeps: what it may keep of old images: "budget" (the
    run's exemplars), "nothing" or "everything", the last two whatever the budget.
    """

    name: str
    grows: str
    loss: Loss
    trains: Callable[[Task, Options], tuple[str, ...]]
    published: Schedule
    rectify: Callable[[Variables, Task], Variables] = leave
    teacher: bool = False
    keeps: str = "budget"

    def at(self, task: Task) -> "Method":
        """The method as it acts in `task`: itself, or what all methods do in the base task."""
        if not task.is_base:
            return self
        return dataclasses.replace(
            self, loss=cross_entropy, trains=everything, rectify=leave, teacher=False
        )


def everything(task: Task, options: Options) -> tuple[str, ...]:
    """All parameters learn."""
    return ("*",)


def schedules(method: Method, name: str) -> tuple[Schedule, Schedule]:
    """(base task, later tasks) of a named schedule: "paper", "published" or "cosine"."""
    paper = Schedule(epochs=170, milestones=(80, 150), weight_decay=5e-4)
    named = {
        "paper": (paper, dataclasses.replace(paper, weight_decay=2e-4)),
        "published": (
            Schedule(epochs=200, milestones=(60, 120, 170), weight_decay=5e-4),
            method.published,
        ),
    }
    named["cosine"] = tuple(
        dataclasses.replace(s, kind="cosine", milestones=()) for s in named["paper"]
    )
    return named[name]


SCHEDULES = ("paper", "published", "cosine")
