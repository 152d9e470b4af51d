"""Learner: what survives a task, and is exactly what a checkpoint holds."""

import dataclasses
import functools
import hashlib

import jax
import numpy as np

from memo_jax import budget
from memo_jax.exemplars import Memory
from memo_jax.freezing import path_of
from memo_jax.network import Network, Variables
from memo_jax.protocol import Task


@dataclasses.dataclass(frozen=True)
class Learner:
    """The learner after `tasks_done` tasks.

    variables: None before the first task. history: one evaluation row per task
    (evaluation.by_task). spent: seconds so far by phase, and images trained on.
    """

    variables: Variables | None
    memory: Memory
    history: tuple[dict, ...] = ()
    spent: dict[str, float] = dataclasses.field(default_factory=dict)

    @property
    def tasks_done(self) -> int:
        return len(self.history)

    def arrays(self) -> dict:
        """The arrays, as the tree that is saved and digested."""
        memory = {"images": self.memory.slots, "labels": self.memory.labels}
        return {"variables": self.variables, "memory": memory}

    @functools.cached_property
    def digest(self) -> str:
        """The digest of all arrays, computed once: a large memory takes seconds."""
        return digest(self.arrays())


def held(variables: Variables, memory: Memory) -> dict[str, float]:
    """What is held now, measured on the arrays: the terms of budget.Ledger, and `filled` slots."""
    params = variables["params"]
    leaves = jax.tree.leaves((params["trunk"], params["blocks"]))
    slots = len(memory.labels)
    exemplar_mb = slots * budget.image_bytes(memory.images.shape[1:]) / budget.MB
    model_mb = sum(leaf.nbytes for leaf in leaves) / budget.MB
    return {
        "exemplars": slots,
        "filled": memory.filled,
        "exemplar_mb": exemplar_mb,
        "parameters": sum(leaf.size for leaf in leaves),
        "model_mb": model_mb,
        "total_mb": exemplar_mb + model_mb,
    }


def abstract_arrays(net: Network, tasks_done: tuple[Task, ...], memory: Memory) -> dict:
    """Shapes and types of Learner.arrays() after these tasks, for a memory of this size."""
    size, image_shape = memory.labels.shape, memory.images.shape[1:]
    images = jax.ShapeDtypeStruct((*size, *image_shape), np.uint8)
    labels = jax.ShapeDtypeStruct(size, np.int32)
    return {"variables": net.abstract(tasks_done), "memory": {"images": images, "labels": labels}}


def digest(arrays) -> str:
    """sha256 over all leaves of a tree of arrays, with their paths, in the order of the paths.

    Two runs ended bit-equal if their learners' digests are equal.
    """
    sha = hashlib.sha256()
    leaves = jax.tree_util.tree_leaves_with_path(arrays)
    for path, leaf in sorted((path_of(p), leaf) for p, leaf in leaves):
        array = np.ascontiguousarray(leaf)
        sha.update(f"{path} {array.dtype} {array.shape}\n".encode())
        sha.update(array.tobytes())
    return sha.hexdigest()
