"""The axes of benchmarks.scaling: what is measured at each of their values.

`blocks` and `estimate` look at tasks of the config's own stream, which goes on beyond its last task
with made-up classes. The other axes look at the second of two tasks, a network of two blocks where
the method grows one, so that only one thing changes along an axis.
"""

import dataclasses
import math
import pathlib

import numpy as np
from ml_collections import ConfigDict

from benchmarks import settings
from benchmarks.job import Job
from memo_jax import budget, datasets, planning, protocol
from memo_jax.commands.budget import DATASETS
from memo_jax.errors import UserError
from memo_jax.planning import Plan
from memo_jax.protocol import Task

AXES = ("blocks", "batch", "exemplars", "classes", "devices", "estimate")
PHASES = {
    "blocks": ("train", "herding", "evaluate"),
    "batch": ("train", "forward"),
    "exemplars": ("herding", "means", "evaluate"),
    "classes": ("train", "herding", "evaluate"),
    "devices": ("train", "evaluate"),
    "estimate": ("train", "herding", "evaluate"),
}
"""What is measured on each axis; herding and means where there are exemplars."""

KNOWN = ("cifar10", "cifar100", "digits")
"""Datasets whose numbers are in DATASETS: they need not be there."""


@dataclasses.dataclass(frozen=True)
class Point:
    """A value of an axis: the job whose last task is measured there, as processes.Measured."""

    axis: str
    value: int
    phases: tuple[str, ...]
    job: Job
    config: ConfigDict
    steps: int
    speed: dict
    out: pathlib.Path

    @property
    def task(self) -> Task:
        """The task that is measured."""
        return self.job.tasks[-1]


@dataclasses.dataclass(frozen=True)
class Stream:
    """A config made ready for other numbers of blocks, classes, ..., and what it comes to itself.

    config: everything that follows from the stream is a plain number in it. train_sizes,
    test_sizes: images of each class, int `[K]`, taken as spread evenly. steps, out: as in Point;
    test_images: how many a point evaluates. devices: that there are, if there are no more than
    that, most_devices. memory_bytes: of a device.
    """

    config: ConfigDict
    plan: Plan
    image_shape: tuple[int, int, int]
    train_sizes: np.ndarray
    test_sizes: np.ndarray
    out: pathlib.Path
    test_images: int = 1
    steps: int = 1
    devices: int = 1
    most_devices: float = math.inf
    memory_bytes: float = math.inf

    @classmethod
    def of(cls, config: ConfigDict, out: pathlib.Path) -> "Stream":
        """Raises UserError for what is wrong with the config."""
        config = config.copy_and_resolve_references()
        config.base_from = None
        planning.check(config, num_devices=1)
        image_shape, *counts = _numbers(config)
        train, test = counts
        plan = planning.make(config, datasets.blank("noise", image_shape, train, test))
        # The budget and "auto" of the stream as it is hold for all that are made from it.
        config.memory.total_mb = None
        config.memory.exemplars = plan.ledger.exemplars or None
        config.method.train_trunk = str(plan.options.train_trunk).lower()
        config.protocol.stop_after = None
        return cls(config, plan, image_shape, train, test, out)

    @property
    def job(self) -> Job:
        """The config's own run."""
        return settings.make_job(self.config, self.plan)

    @property
    def num_classes(self) -> int:
        return len(self.train_sizes)

    def point(self, axis: str, value: int) -> Point:
        """What is measured at a value of an axis. Raises UserError where there is no such thing."""
        if axis in ("blocks", "estimate"):
            return self._grown(axis, value)
        config = self.config.copy_and_resolve_references()
        if axis == "batch":
            config.schedule.batch_size = config.train.eval_batch_size = value
        elif axis == "exemplars":
            config.memory.exemplars = value
        classes = value if axis == "classes" else self.num_classes
        new = min(config.protocol.increment, classes // 2)
        if not new:
            raise UserError(f"expected at least 2 classes, for two tasks, found {classes}")
        config.protocol.base, config.protocol.increment = classes - new, new
        devices = value if axis == "devices" else None
        if devices and devices > self.most_devices:
            raise UserError(f"expected at most the {self.most_devices} devices there are")
        return self._made(axis, value, config, classes, devices)

    def _grown(self, axis: str, number: int) -> Point:
        """The task of that number, counted from 1."""
        config = self.config.copy_and_resolve_references()
        base, increment = config.protocol.base, config.protocol.increment
        classes = max(self.num_classes, (base or increment) + (number - 1) * increment)
        config.protocol.stop_after = number
        return self._made(axis, number, config, classes)

    def _made(
        self, axis: str, value: int, config: ConfigDict, classes: int, devices: int | None = None
    ) -> Point:
        planning.check(config, devices or self.devices)
        tasks = protocol.split(classes, config.protocol.base, config.protocol.increment)
        noise = self._noise(config, tasks[: config.protocol.stop_after][-1], classes)
        plan = planning.make(config, datasets.blank("noise", **noise))
        self._expect_room(plan, noise)
        remembers = plan.ledger.exemplars > 0
        return Point(
            axis=axis,
            value=value,
            phases=tuple(p for p in PHASES[axis] if remembers or p not in ("herding", "means")),
            job=settings.make_job(config, plan, noise),
            config=config,
            steps=self.steps,
            speed={"devices": devices},
            out=self.out,
        )

    def _expect_room(self, plan: Plan, noise: dict) -> None:
        count = plan.net.num_parameters(len(plan.tasks))
        held = budget.Ledger(sum(noise["train"]), count, budget.image_bytes(self.image_shape))
        if held.total_mb * budget.MB > self.memory_bytes:
            raise UserError(
                f"parameters and images alone take {held.total_mb:,.0f} MB, the device has "
                f"{self.memory_bytes / budget.MB:,.0f} MB; leave it out"
            )

    def _noise(self, config: ConfigDict, task: Task, classes: int) -> dict:
        """As many images as `task` sees: all of its own classes, of old ones what is kept.

        Classes that come later have as many as it takes to fill the memory.
        """
        each = int(self.train_sizes.max())
        later = classes - task.num_seen
        wanted = config.memory.exemplars or 0
        if self.plan.method.keeps == "everything":
            wanted = each * classes
        kept = min(each, -(-wanted // max(task.num_old, 1)))
        rest = min(each, -(-wanted // max(later, 1)))
        test = budget.shares(self.test_images, task.num_seen, "fill")
        return {
            "image_shape": list(self.image_shape),
            "train": [kept] * task.num_old + [each] * task.num_new + [rest] * later,
            "test": [*map(int, test), *[0] * later],
        }


def _numbers(config: ConfigDict) -> tuple[tuple[int, int, int], np.ndarray, np.ndarray]:
    """(image shape, training images of each class, test images of each class) of its dataset."""
    name = config.dataset.name
    if name in KNOWN:
        facts = DATASETS[name]
        shape, classes = facts.image_shape, facts.num_classes
        counts = (facts.num_images, facts.num_test)
    else:
        dataset = datasets.load(name, config.dataset.path, config.dataset.source)
        shape, classes = dataset.image_shape, dataset.num_classes
        counts = (len(dataset.train), len(dataset.test))
    return shape, *(budget.shares(count, classes, "fill") for count in counts)
