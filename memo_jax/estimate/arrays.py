"""What is certain to be held on every device while a task is learned: counted, not measured."""

import dataclasses
import functools
import math

import jax
import numpy as np
from ml_collections import ConfigDict

from memo_jax import budget, freezing, streaming
from memo_jax.datasets import Dataset
from memo_jax.network import Variables
from memo_jax.optimizers import sgd
from memo_jax.planning import Plan
from memo_jax.protocol import Task

LABEL_BYTES = 4
FLOAT_BYTES = 4


def num_bytes(tree) -> int:
    """Bytes of a tree of arrays, or of their shapes and types."""
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


@dataclasses.dataclass(frozen=True)
class Arrays:
    """Numbers of images, shapes of networks, and bytes on each device in `task`.

    new, kept: images of its own classes, and exemplars of older ones that it finds. largest: new
    images of one class, at most. trained: False for a base task that is borrowed. streamed: whether
    its new images stay on the host. share: among how many devices images are divided. variables,
    before: shapes of the network in the task and of the one it has grown from, which stays until
    the end of the task, as a teacher or not. optimizer: bytes of its state. slots: of the memory,
    filled or not; test: images that are kept for evaluation on the devices.
    """

    task: Task
    new: int
    kept: int
    largest: int
    trained: bool
    streamed: bool
    share: int
    variables: Variables
    before: Variables | None
    optimizer: int
    slots: int
    test: int
    image_bytes: int

    @property
    def pool(self) -> int:
        """Images that the task learns from."""
        return self.new + self.kept

    @property
    def resident(self) -> int:
        """Images of the pool that are on the devices."""
        return self.kept + (0 if self.streamed else self.new)

    @functools.cached_property
    def network(self) -> int:
        """Bytes of both networks and of the optimizer."""
        return num_bytes(self.variables) + self.optimizer + num_bytes(self.before)

    @property
    def memory(self) -> int:
        """Bytes of a memory."""
        return self._bytes_of(self.slots) + self.slots * LABEL_BYTES

    @property
    def images(self) -> int:
        """Bytes of memory, pool and test images."""
        pool = self._bytes_of(self.resident) + self.pool * LABEL_BYTES
        return self.memory + pool + self._bytes_of(self.test)

    @property
    def training(self) -> int:
        """Bytes while the network is trained, but for what a step takes."""
        return self.network + self.images

    @property
    def evaluating(self) -> int:
        """Bytes while it is used, but for what that takes."""
        return self.training - self.optimizer

    def features(self, images: int) -> int:
        """Bytes of the features of so many images."""
        return images * FLOAT_BYTES * self.variables["params"]["head"]["kernel"].shape[0]

    def _bytes_of(self, images: int) -> int:
        """What a device holds of so many images."""
        return -(-images // self.share) * self.image_bytes


def by_task(
    config: ConfigDict, plan: Plan, dataset: Dataset, devices: int, device_memory: int | None
) -> list[Arrays]:
    """The arrays of every task of a run. dataset: in the order of its classes, or blank.

    device_memory: bytes of each device, which decide what is streamed; None if unknown.
    """
    sizes = np.bincount(dataset.train.labels, minlength=dataset.num_classes)
    share = devices if config.memory.placement == "sharded" else 1
    image_bytes = budget.image_bytes(dataset.image_shape)

    def streams(images: int, setting: str) -> bool:
        return streaming.streams(images * image_bytes / share, setting, device_memory)

    before, found = None, []
    for task, variables in zip(plan.tasks, plan.net.stages(plan.tasks)):
        learns = freezing.mask(variables["params"], plan.method.at(task).trains(task, plan.options))
        trained = not (task.is_base and config.base_from)
        optimizer = sgd(plan.schedule(task), 1, learns)
        state = jax.eval_shape(optimizer.init, variables["params"]) if trained else None
        slots, own = plan.ledger.exemplars, sizes[task.first : task.stop]
        shares = budget.shares(slots, task.num_old, plan.allocation) if task.num_old else 0
        found.append(
            Arrays(
                task=task,
                new=int(own.sum()),
                kept=int(np.minimum(shares, sizes[: task.first]).sum()),
                largest=int(own.max()),
                trained=trained,
                streamed=streams(int(own.sum()), config.dataset.streaming),
                share=share,
                variables=variables,
                before=before,
                optimizer=num_bytes(state),
                slots=slots,
                test=0 if streams(len(dataset.test), "auto") else len(dataset.test),
                image_bytes=image_bytes,
            )
        )
        before = variables
    return found
