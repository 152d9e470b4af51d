"""Exemplar memory: real images of the classes seen, in device arrays whose size never changes."""

import functools
from typing import NamedTuple

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from memo_jax import budget, parallel
from memo_jax.datasets import Images
from memo_jax.protocol import Task

EMPTY = -1


@flax.struct.dataclass
class Memory:
    """images uint8 `[M, H, W, C]`, labels int32 `[M]`, -1 in empty slots; M is the run's budget.

    Classes follow one another, each in the order in which its exemplars were picked, so that
    keeping the first m of a class keeps the best m. Images that are divided among devices, so that
    each holds those of some of the classes, may have more rows, which make the parts equal.
    """

    images: jax.Array
    labels: jax.Array

    @classmethod
    def of(cls, images: np.ndarray, labels: np.ndarray, sharding) -> "Memory":
        """Puts images `[M, H, W, C]` where `sharding` says, with their labels `[M]`."""
        return cls(*_placed(images, labels, sharding))

    @classmethod
    def empty(cls, size: int, image_shape: tuple[int, int, int], sharding) -> "Memory":
        images = np.zeros((size, *image_shape), np.uint8)
        return cls.of(images, np.full(size, EMPTY), sharding)

    @property
    def slots(self) -> jax.Array | np.ndarray:
        """The images `[M, H, W, C]` of all slots; on the host if the devices have divided them."""
        if parallel.is_divided(self.images):
            return parallel.read(self.images, np.arange(len(self.labels)))
        return self.images

    @property
    def filled(self) -> int:
        """Number of slots that hold an exemplar; they come first."""
        return int((np.asarray(self.labels) != EMPTY).sum())


class Pool(NamedTuple):
    """What one task may learn from: images uint8 `[N, H, W, C]`, labels int32 `[N]`, on the device.

    Exemplars come first, in the memory's order, then the new images, class by class. If these are
    too large for the device they stay on the host, in `rest`, and images has the exemplars only.
    As in Memory, divided images may have more rows.
    """

    images: jax.Array
    labels: jax.Array
    rest: Images | None = None

    @property
    def size(self) -> int:
        return len(self.labels)

    @property
    def resident(self) -> int:
        """How many images of the pool are on the device; these come first."""
        return self.size - (0 if self.rest is None else len(self.rest))


def _placed(images: np.ndarray, labels: np.ndarray, sharding) -> tuple[jax.Array, jax.Array]:
    """Images where `sharding` says; labels, which are few bytes, on every device."""
    everywhere = parallel.replicated(sharding.mesh)
    labels = parallel.place(labels.astype(np.int32), everywhere)
    return parallel.place_rows(images, sharding), labels


def join(
    memory: Memory, images: Images, labels: np.ndarray, sharding, on_host: bool = False
) -> Pool:
    """Puts the exemplars and a task's new images `[n, H, W, C]`, sorted by class, into one pool.

    on_host: leaves the new images where they are.
    """
    slots = np.arange(memory.filled)
    kept = parallel.read(memory.images, slots)
    labels = np.concatenate([np.asarray(memory.labels)[slots], labels])
    if not on_host:
        return Pool(*_placed(np.concatenate([kept, images[:]]), labels, sharding))
    if not len(kept):  # a step reads one at least, so that it is the same for any number of them
        kept = np.zeros((1, *images.shape[1:]), np.uint8)
    return Pool(*_placed(kept, labels, sharding), rest=images)


def normalise(features: jax.Array) -> jax.Array:
    """L2-normalises the last axis; the tiny addend is the published code's."""
    return features / (jnp.linalg.norm(features, axis=-1, keepdims=True) + 1e-8)


@functools.partial(jax.jit, static_argnames="m")
def herd(features: jax.Array, m: int, valid: jax.Array | None = None) -> jax.Array:
    """Greedy picks whose running mean stays closest to the class mean, int32 `[m]` (iCaRL).

    features `[n, D]` raw; they are L2-normalised, their mean is not normalised again. valid: bool
    `[n]`, False for rows that only fill up; m must not exceed the number of valid rows.
    """
    valid = jnp.ones(len(features), bool) if valid is None else valid
    features = normalise(features) * valid[:, None]
    mean = features.sum(0) / valid.sum()

    def pick(k, state):
        picks, taken, total = state
        candidates = (features + total) / (k + 1)
        distances = ((mean - candidates) ** 2).sum(axis=1)
        best = jnp.argmin(jnp.where(taken, jnp.inf, distances)).astype(jnp.int32)
        return picks.at[k].set(best), taken.at[best].set(True), total + features[best]

    start = (jnp.zeros(m, jnp.int32), ~valid, jnp.zeros_like(mean))
    return jax.lax.fori_loop(0, m, pick, start)[0]


@functools.partial(jax.jit, static_argnames="m")
def nearest(features: jax.Array, m: int, valid: jax.Array | None = None) -> jax.Array:
    """The m rows nearest to the mean of raw features `[n, D]`, int32 `[m]` (the paper's text)."""
    valid = jnp.ones(len(features), bool) if valid is None else valid
    mean = (features * valid[:, None]).sum(0) / valid.sum()
    distances = ((features - mean) ** 2).sum(axis=1)
    return jnp.argsort(jnp.where(valid, distances, jnp.inf))[:m].astype(jnp.int32)


SELECTIONS = {"herding": herd, "nearest": nearest}
ALLOCATIONS = ("equal", "fill")


def refresh(
    size: int,
    pool: Pool,
    features: jax.Array,
    task: Task,
    selection: str,
    allocation: str,
    sharding,
) -> tuple[Memory, jax.Array]:
    """The memory of `size` slots after `task`, and the features of its exemplars `[M, D]`.

    Old classes are cut to their first picks, new ones picked by features `[N, D]`, the raw ones of
    the pool's images. A class with fewer images than its share keeps all it has.
    """
    labels = np.asarray(pool.labels)
    quota = budget.shares(size, task.num_seen, allocation)
    kept = [np.flatnonzero(labels == c)[: quota[c]] for c in range(task.first)]
    rows = [np.flatnonzero(labels == c) for c in range(task.first, task.stop)]
    picked = _select(features, rows, quota[task.first :], selection, sharding.mesh)
    source = np.concatenate([*kept, *picked]).astype(np.int32)
    empty = size - len(source)
    source = np.pad(source, (0, empty))
    filled = np.arange(size) < size - empty
    images = np.zeros((size, *pool.images.shape[1:]), np.uint8)
    images[filled] = _images_at(pool, source[filled])
    memory = Memory.of(images, np.where(filled, labels[source], EMPTY), sharding)
    return memory, jnp.take(features, source, axis=0)


def _images_at(pool: Pool, source: np.ndarray) -> np.ndarray:
    """The pool's images at `source` int `[n]`, on the host."""
    here = source < pool.resident
    images = np.empty((len(source), *pool.images.shape[1:]), np.uint8)
    images[here] = parallel.read(pool.images, source[here])
    if not here.all():
        images[~here] = pool.rest[source[~here] - pool.resident]
    return images


def _select(
    features: jax.Array, rows: list[np.ndarray], quota: np.ndarray, selection: str, mesh
) -> list[np.ndarray]:
    """Picks for all new classes at once: classes are padded to one size and run side by side."""
    longest = max(len(r) for r in rows)
    wanted = int(min(longest, quota.max()))
    index = np.stack([np.pad(r, (0, longest - len(r))) for r in rows])
    valid = np.stack([np.arange(longest) < len(r) for r in rows])
    # Each device takes as many classes; to that end the last one is repeated, and dropped again.
    lacking = ((0, -len(rows) % mesh.size), (0, 0))
    index, valid = (np.pad(array, lacking, mode="edge") for array in (index, valid))
    picks = np.asarray(pick(features, index, valid, wanted, selection, mesh))
    return [r[p[: min(len(r), q)]] for r, p, q in zip(rows, picks, quota)]


@functools.partial(jax.jit, static_argnames=("m", "selection", "mesh"))
def pick(features, index, valid, m: int, selection: str, mesh) -> jax.Array:
    """m picks for each class: index int and valid bool `[classes, n]` -> places in `n`.

    Every device picks for its part of the classes, and gets the picks of all.
    """

    def of_part(classes: tuple[jax.Array, jax.Array], features: jax.Array) -> jax.Array:
        select = SELECTIONS[selection]
        return jax.vmap(lambda rows, real: select(features[rows], m, real))(*classes)

    picks = parallel.on_parts(of_part, mesh, (index, valid), features)
    return jax.lax.with_sharding_constraint(picks, parallel.replicated(mesh))


@functools.partial(jax.jit, static_argnames="num_classes")
def class_means(features: jax.Array, labels: jax.Array, num_classes: int) -> jax.Array:
    """Mean of each class's L2-normalised features, normalised again: `[K, D]`.

    features `[M, D]` raw; labels int `[M]`, -1 where there is no exemplar.
    """
    members = jax.nn.one_hot(labels, num_classes)
    counts = jnp.maximum(members.sum(0), 1)[:, None]
    sums = jnp.matmul(members.T, normalise(features), precision="highest")
    return normalise(sums / counts)


def nearest_mean_scores(features: jax.Array, means: jax.Array) -> jax.Array:
    """Minus the squared distances `[B, K]` of normalised features `[B, D]` to class means."""
    features = normalise(features)
    squares = (features**2).sum(1)[:, None] + (means**2).sum(1)[None]
    return 2 * jnp.matmul(features, means.T, precision="highest") - squares
