"""Predictions by the head and by the nearest class mean, and exact counts of the right ones."""

from collections.abc import Callable

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from memo_jax import exemplars, parallel
from memo_jax.datasets import Images
from memo_jax.network import Network, Variables
from memo_jax.order import PAD
from memo_jax.protocol import Task

RULES = ("head", "nearest_mean")
"""How a class is predicted. A run without exemplars has no class means and only the first."""
TOP = 5


@flax.struct.dataclass
class Counts:
    """Sums over test images, for each of the first R of RULES (axis 0).

    confusion int `[R, K, K]`: true class by predicted class; top int `[R]`: images whose class is
    among the min(5, K) best.
    """

    confusion: jax.Array
    top: jax.Array

    @classmethod
    def zero(cls, num_rules: int, num_classes: int) -> "Counts":
        shape = (num_rules, num_classes, num_classes)
        return cls(np.zeros(shape, np.int32), np.zeros(num_rules, np.int32))


_take = jax.jit(parallel.take, static_argnames=("mesh", "divided"))


class Predictor:
    """Features and logits of images in fixed-size batches, compiled once per network.

    The batch size is rounded up to a multiple of the devices; the last batch is filled up and
    the filling dropped, so results are exact for any number of images.
    """

    def __init__(self, net: Network, prepare: Callable, variables: Variables, batch: int, mesh):
        devices = mesh.size
        self.batch = -(-batch // devices) * devices
        self._mesh = mesh

        def forward(variables: Variables, images: jax.Array) -> tuple[jax.Array, jax.Array]:
            images = jax.lax.with_sharding_constraint(images, parallel.sharded(mesh))
            outputs, _ = net.apply(variables, prepare(images))
            return outputs.features, outputs.logits

        shape = (self.batch, *net.image_shape)
        images = jax.ShapeDtypeStruct(shape, np.uint8, sharding=parallel.sharded(mesh))
        # Every process needs all features and logits.
        jitted = jax.jit(forward, out_shardings=parallel.replicated(mesh))
        self._forward = jitted.lower(variables, images).compile()

    @property
    def memory(self) -> dict[str, int]:
        """Bytes on each device, as of parallel.program_bytes."""
        return parallel.program_bytes(self._forward)

    def __call__(self, variables: Variables, images: jax.Array | Images, rows: np.ndarray):
        """Yields (rows int `[B]`, -1 where filled up; features `[B, D]`; logits `[B, K]`).

        images: uint8 `[N, H, W, C]` on the device or on the host; rows: which of them, int on the
        host.
        """
        for start in range(0, len(rows), self.batch):
            part = rows[start : start + self.batch]
            part = np.pad(part, (0, self.batch - len(part)), constant_values=PAD)
            yield part, *self._forward(variables, self._batch(images, np.maximum(part, 0)))

    def _batch(self, images: jax.Array | Images, rows: np.ndarray) -> jax.Array:
        sharding = parallel.sharded(self._mesh)
        if isinstance(images, jax.Array):
            batch = _take(images, rows, self._mesh, parallel.is_divided(images))
            return jax.device_put(batch, sharding)
        shape = (len(rows), *images.shape[1:])
        return parallel.place_from(lambda part: images[rows[part]], shape, sharding)

    def features(self, variables: Variables, pool: exemplars.Pool) -> jax.Array:
        """Features `[N, D]` of all images of a pool."""
        parts = [(pool.images, pool.resident), (pool.rest, pool.size - pool.resident)]
        return jnp.concatenate(
            [
                features[: int((rows != PAD).sum())]
                for images, count in parts
                for rows, features, _ in self(variables, images, np.arange(count))
            ]
        )


@jax.jit
def _count(counts: Counts, features, logits, means, labels) -> Counts:
    """Adds a batch: features `[B, D]`, logits `[B, K]`, labels int `[B]`, -1 where filled up."""
    scores = logits[None]
    if means is not None:
        scores = jnp.stack([logits, exemplars.nearest_mean_scores(features, means)])
    best = jax.lax.top_k(scores, min(TOP, logits.shape[1]))[1]
    hits = (best == labels[None, :, None]).any(axis=2).sum(axis=1, dtype=jnp.int32)
    real = (labels != PAD).astype(jnp.int32)
    rule = jnp.arange(len(scores))[:, None]
    confusion = counts.confusion.at[rule, jnp.maximum(labels, 0)[None], best[:, :, 0]].add(real)
    return Counts(confusion, counts.top + hits)


def count(
    predict: Predictor,
    variables: Variables,
    means: jax.Array | None,
    images: jax.Array | Images,
    labels: np.ndarray,
    task: Task,
) -> Counts:
    """Classifies the test images of all classes seen after `task`, without the task's identity.

    means `[K, D]`: class means of the exemplars, None without any; images uint8 `[N, H, W, C]` on
    the device or the host, labels int `[N]` on the host.
    """
    rows = np.flatnonzero(labels < task.num_seen)
    counts = Counts.zero(1 if means is None else len(RULES), task.num_seen)
    for part, features, logits in predict(variables, images, rows):
        targets = np.where(part == PAD, PAD, labels[part]).astype(np.int32)
        counts = _count(counts, features, logits, means, targets)
    return jax.tree.map(np.asarray, counts)


def by_task(counts: Counts, task: Task) -> dict:
    """The history row of a task: plain numbers, sums only (metrics.py takes the ratios)."""
    row = {"task": task.index, "first": task.first, "stop": task.stop}
    row["images"] = counts.confusion[0].sum(axis=1).tolist()
    for rule, confusion, top in zip(RULES, counts.confusion, counts.top):
        row[rule] = {"correct": np.diagonal(confusion).tolist(), "top": int(top)}
    return row


def rules_of(history: list[dict]) -> list[str]:
    """Those of RULES by which the runs's history rows are counted."""
    return [rule for rule in RULES if rule in history[-1]]
