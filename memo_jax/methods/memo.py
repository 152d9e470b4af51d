"""MEMO: a shared generalized trunk and one specialized block per task (Zhou et al., ICLR 2023)."""

import jax

from memo_jax import losses
from memo_jax.methods.base import Method, Options, Terms, align_weights
from memo_jax.network import Outputs
from memo_jax.optimizers import Schedule
from memo_jax.protocol import Task


def loss(
    outputs: Outputs, labels: jax.Array, teacher: Outputs | None, task: Task, options: Options
) -> Terms:
    """Cross-entropy of the head + alpha_aux * that of the auxiliary head (old classes as one)."""
    head = losses.cross_entropy(outputs.logits, labels)
    auxiliary = losses.cross_entropy(outputs.aux_logits, losses.auxiliary_labels(labels, task))
    total = head + options.alpha_aux * auxiliary
    return {"loss": total, "cross_entropy": head, "auxiliary": auxiliary}


def trains(task: Task, options: Options) -> tuple[str, ...]:
    """The newest block and the heads; the trunk and the old blocks where the options say so."""
    old_blocks = tuple(f"blocks/{b}" for b in range(task.index))
    return (
        f"blocks/{task.index}",
        "head",
        "aux_head",
        *(("trunk",) if options.train_trunk else ()),
        *(old_blocks if options.train_old_blocks else ()),
    )


METHOD = Method(
    name="memo",
    grows="last_stage",
    loss=loss,
    trains=trains,
    published=Schedule(epochs=170, milestones=(80, 120, 150), weight_decay=2e-4),
    rectify=align_weights,
)
