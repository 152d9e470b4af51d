"""Finetune: one network, trained on the new images alone. The lower line of a comparison."""

from memo_jax.methods.base import Method, cross_entropy, everything
from memo_jax.methods.replay import METHOD as REPLAY

METHOD = Method(
    name="finetune",
    grows="nothing",
    loss=cross_entropy,
    trains=everything,
    published=REPLAY.published,
    keeps="nothing",
)
