"""Replay: one network, trained on the new images and the exemplars with plain cross-entropy."""

from memo_jax.methods.base import Method, cross_entropy, everything
from memo_jax.optimizers import Schedule

METHOD = Method(
    name="replay",
    grows="nothing",
    loss=cross_entropy,
    trains=everything,
    published=Schedule(epochs=70, milestones=(30, 50), weight_decay=2e-4),
)
