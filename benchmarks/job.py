"""What both sides are given and give back, free of either framework."""

import dataclasses
from collections.abc import Callable

import numpy as np

from benchmarks import scaling_noise
from memo_jax import budget, datasets, protocol
from memo_jax.datasets import Dataset
from memo_jax.protocol import Task


@dataclasses.dataclass(frozen=True)
class Job:
    """A run as plain numbers: a resolved config, cut to the first `tasks`.

    dataset: name, path and source as in configs/base.py. cut: units of the backbone in the trunk.
    noise: the arguments of scaling_noise.dataset, if that takes the dataset's place.
    grows: whether a task adds a block. schedules: of the base task and of later ones, the fields
    of memo_jax.optimizers.Schedule. options: those of memo_jax.methods.base.Options. exemplars: of
    the whole stream, however many tasks are run.
    """

    dataset: dict
    class_order_seed: int
    augment: str
    backbone: str
    cut: int
    grows: bool
    method: str
    options: dict
    tasks: tuple[Task, ...]
    schedules: tuple[dict, dict]
    batch_size: int
    eval_batch_size: int
    exemplars: int
    allocation: str
    seed: int
    noise: dict | None = None

    @classmethod
    def from_dict(cls, tree: dict) -> "Job":
        """The inverse of `dataclasses.asdict`, whatever JSON made of the tuples."""
        tasks = tuple(Task(**task) for task in tree["tasks"])
        return cls(**{**tree, "tasks": tasks, "schedules": tuple(tree["schedules"])})

    def schedule(self, task: Task) -> dict:
        """How `task` is trained."""
        return self.schedules[0 if task.is_base else 1]

    def blocks(self, task: Task) -> int:
        """Number of blocks of the network that learns `task`."""
        return task.index + 1 if self.grows else 1

    def load(self) -> Dataset:
        """The dataset, classes renumbered by their place in the class order; or noise."""
        if self.noise:
            return scaling_noise.dataset(**self.noise)
        dataset = datasets.load(**self.dataset)
        order = protocol.class_order(dataset.num_classes, self.class_order_seed)
        return dataset.in_order(order)

    def share(self, num_classes: int) -> np.ndarray:
        """How many exemplars each of `num_classes` classes may keep, int `[K]`."""
        return budget.shares(self.exemplars, num_classes, self.allocation)

    def pool_rows(self, labels: np.ndarray, task: Task) -> np.ndarray:
        """Training images that `task` could see, int `[n]`: a full memory, then the new ones.

        Each old class is represented by its first images; what is picked costs the same.
        """
        old = self.share(task.first) if task.first else ()
        kept = [np.flatnonzero(labels == c)[:count] for c, count in enumerate(old)]
        return np.concatenate([*kept, self.new_rows(labels, task)])

    def new_rows(self, labels: np.ndarray, task: Task) -> np.ndarray:
        """The training images of the classes of `task`, int `[n]`."""
        return np.flatnonzero((labels >= task.first) & (labels < task.stop))

    def features(self, count: int, width: int) -> np.ndarray:
        """Made-up features `[count, width]` at 0..1, the same for both sides."""
        return np.random.default_rng(0).random((count, width), np.float32)


@dataclasses.dataclass(frozen=True)
class Section:
    """A piece of work to be timed; `work` returns when it is really done.

    images: how many it treats; steps: in how many training steps. compile_seconds: what it took
    to make `work`, where that is a step of its own. memory: bytes by name, known after `work`.
    """

    work: Callable[[], object]
    images: int
    steps: int = 1
    compile_seconds: float = 0.0
    memory: Callable[[], dict[str, int]] = dict
