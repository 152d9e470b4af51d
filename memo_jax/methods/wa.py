"""WA: distillation weighted by the share of old classes, then weight aligning (Zhao 2020)."""

import functools

from memo_jax.methods import icarl
from memo_jax.methods.base import Method, align_weights, everything
from memo_jax.optimizers import Schedule

METHOD = Method(
    name="wa",
    grows="nothing",
    loss=functools.partial(icarl.loss, weighting="convex"),
    trains=everything,
    published=Schedule(epochs=170, milestones=(60, 100, 140), weight_decay=2e-4),
    rectify=align_weights,
    teacher=True,
)
