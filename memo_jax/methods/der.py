"""DER: a whole backbone per task, the old ones frozen (Yan et al., CVPR 2021)."""

from memo_jax.methods.base import Method, Options, align_weights
from memo_jax.methods.memo import loss
from memo_jax.optimizers import Schedule
from memo_jax.protocol import Task


def trains(task: Task, options: Options) -> tuple[str, ...]:
    """The newest backbone and the heads."""
    return (f"blocks/{task.index}", "head", "aux_head")


METHOD = Method(
    name="der",
    grows="backbone",
    loss=loss,
    trains=trains,
    published=Schedule(epochs=170, milestones=(80, 120, 150), weight_decay=2e-4),
    rectify=align_weights,
)
