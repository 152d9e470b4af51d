"""Losses, one value per example; the training step takes the mean over the real examples."""

import jax
import jax.numpy as jnp
import optax

from memo_jax.protocol import Task


def cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """`[B]` from logits `[B, K]` and labels int `[B]`."""
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels)


def distillation(
    student_logits: jax.Array, teacher_logits: jax.Array, temperature: float
) -> jax.Array:
    """Knowledge distillation `[B]`: teacher's softmax against the student's log-softmax.

    student_logits `[B, >= K_old]`, teacher_logits `[B, K_old]`; both at `temperature`, over the
    old classes only, without the usual factor temperature**2 (as the published code).
    """
    old = student_logits[:, : teacher_logits.shape[1]]
    target = jax.nn.softmax(teacher_logits / temperature)
    return -(target * jax.nn.log_softmax(old / temperature)).sum(axis=1)


def auxiliary_labels(labels: jax.Array, task: Task) -> jax.Array:
    """Labels of the auxiliary head: 0 for any old class, 1..n for the new ones in order."""
    return jnp.where(labels < task.first, 0, labels - task.first + 1)
