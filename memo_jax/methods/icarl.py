"""iCaRL: replay, and the previous network teaches its classes (Rebuffi et al., CVPR 2017)."""

import jax

from memo_jax import losses
from memo_jax.methods.base import Method, Options, Terms, everything
from memo_jax.network import Outputs
from memo_jax.optimizers import Schedule
from memo_jax.protocol import Task


def loss(
    outputs: Outputs,
    labels: jax.Array,
    teacher: Outputs | None,
    task: Task,
    options: Options,
    weighting: str = "sum",
) -> Terms:
    """Cross-entropy CE and distillation KD of the old classes' logits.

    options.distill_weight, or if that is "auto" the method's own `weighting`: "sum" is CE + KD (as
    published for iCaRL), "convex" (1 - l) CE + l KD with l = old / seen classes (WA; the paper's
    Eq. 1).
    """
    head = losses.cross_entropy(outputs.logits, labels)
    taught = losses.distillation(outputs.logits, teacher.logits, options.temperature)
    if options.distill_weight != "auto":
        weighting = options.distill_weight
    old = task.num_old / task.num_seen
    total = head + taught if weighting == "sum" else (1 - old) * head + old * taught
    return {"loss": total, "cross_entropy": head, "distillation": taught}


METHOD = Method(
    name="icarl",
    grows="nothing",
    loss=loss,
    trains=everything,
    published=Schedule(epochs=170, milestones=(80, 120), weight_decay=2e-4),
    teacher=True,
)
