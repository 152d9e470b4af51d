"""From a plan to what is compiled: the training problem of a task, and what predicts with it."""

import dataclasses
import functools

import jax
from ml_collections import ConfigDict

from memo_jax import augment, freezing, parallel, training
from memo_jax.datasets import Dataset
from memo_jax.evaluation import Predictor
from memo_jax.network import Variables
from memo_jax.planning import Plan
from memo_jax.protocol import Task


def placement(config: ConfigDict, mesh: jax.sharding.Mesh) -> jax.sharding.NamedSharding:
    """The sharding of all images on the devices."""
    return parallel.PLACEMENTS[config.memory.placement](mesh)


@dataclasses.dataclass(frozen=True)
class Problems:
    """Poses the problems of a run. dataset: of which only mean and deviation matter here.

    Variables may be arrays or only shapes and types.
    """

    config: ConfigDict
    plan: Plan
    dataset: Dataset
    mesh: jax.sharding.Mesh

    @property
    def scan(self) -> bool:
        """Whether an epoch is one dispatch."""
        loops = {"auto": parallel.prefers_scan(), "scan": True, "python": False}
        return loops[self.config.train.loop]

    def training(
        self, task: Task, variables: Variables, before: Variables | None
    ) -> training.Problem:
        """What the method poses in `task`, for a network that has grown from `before`."""
        method, options = self.plan.method.at(task), self.plan.options
        return training.Problem(
            net=self.plan.net,
            loss=functools.partial(method.loss, task=task, options=options),
            learns=freezing.mask(variables["params"], method.trains(task, options)),
            schedule=self.plan.schedule(task),
            prepare=self._change,
            batch_size=self.config.schedule.batch_size,
            seed=self.config.seed,
            task=task.index,
            mesh=self.mesh,
            teacher=before if method.teacher else None,
            host_crops=self.config.dataset.augment in augment.CROPPING,
        )

    def predictor(self, variables: Variables) -> Predictor:
        """Features and logits of test images for networks of the shape of `variables`."""
        batch = self.config.train.eval_batch_size
        return Predictor(self.plan.net, self._convert, variables, batch, self.mesh)

    def _change(self, key: jax.Array, images: jax.Array, *cropped: jax.Array) -> jax.Array:
        """Images uint8 `[B, H, W, C]`, augmented and normalised for training."""
        return self._normalised(augment.get(self.config.dataset.augment)(key, images, *cropped))

    def _convert(self, images: jax.Array) -> jax.Array:
        """Images uint8 `[B, H, W, C]`, normalised for predictions."""
        return self._normalised(augment.to_float(images))

    def _normalised(self, images: jax.Array) -> jax.Array:
        return augment.normalise(images, self.dataset.mean, self.dataset.std)
