"""A tiny training problem for tests: resnet8 on 8 x 8 images, second of two tasks."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from memo_jax import augment, backbones, exemplars, freezing, methods, network, parallel, training
from memo_jax.methods.base import Options
from memo_jax.optimizers import Schedule
from memo_jax.protocol import Task

TASKS = (Task(0, 0, 2), Task(1, 2, 4))
OPTIONS = Options(alpha_aux=1.0, train_trunk=True, train_old_blocks=False, block_init="previous")


def net(grows: str = "last_stage") -> network.Network:
    return network.build(backbones.get("resnet8"), (8, 8, 3), "memo", grows)


def pool(images: int = 22, sharding: jax.sharding.NamedSharding | None = None) -> exemplars.Pool:
    """Random images of four classes, on all devices unless `sharding` says otherwise."""
    draws = np.random.RandomState(0)
    pixels = draws.randint(0, 256, (images, 8, 8, 3)).astype(np.uint8)
    labels = np.arange(images, dtype=np.int32) % 4
    sharding = sharding or parallel.replicated(parallel.data_mesh())
    nothing = exemplars.Memory.empty(0, pixels.shape[1:], sharding)
    return exemplars.join(nothing, pixels, labels, sharding)


def problem(variables: dict, epochs: int = 2, **changes) -> training.Problem:
    """MEMO's second task on such a pool, eight images a step."""
    method = methods.get("memo")
    task = TASKS[1]

    def prepare(key: jax.Array, images: jax.Array) -> jax.Array:
        return augment.normalise(augment.cifar(key, images), (0.5,) * 3, (0.25,) * 3)

    settings = {
        "net": net(),
        "loss": functools.partial(method.loss, task=task, options=OPTIONS),
        "learns": freezing.mask(variables["params"], method.trains(task, OPTIONS)),
        "schedule": Schedule(epochs=epochs, milestones=(1,)[: epochs - 1], weight_decay=2e-4),
        "prepare": prepare,
        "batch_size": 8,
        "seed": 3,
        "task": 1,
        "mesh": parallel.data_mesh(),
    }
    return training.Problem(**{**settings, **changes})


def variables() -> dict:
    """The network of the second task, untrained."""
    grown = None
    for task in TASKS:
        grown = net().expand(grown, task, seed=3)
    return jax.tree.map(jnp.asarray, grown)
