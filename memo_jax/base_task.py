"""Starts a run from another run's base task.

The base task is the same for all methods: one network, plain cross-entropy. Where its terms agree
its result can be shared, whatever the method, the cut and the memory: trunk and block together are
the same network everywhere, and exemplars are chosen anew.
"""

import json
import pathlib

import jax
import numpy as np

from memo_jax import checkpoints, memory_plan, methods
from memo_jax.errors import UserError
from memo_jax.exemplars import Memory
from memo_jax.learner import abstract_arrays
from memo_jax.network import Network, Variables
from memo_jax.protocol import Task


def terms(resolved: dict) -> dict:
    """What determines the result of a base task, from a resolved config (planning.resolved)."""
    protocol, schedule = resolved["protocol"], resolved["schedule"]
    return {
        "seed": resolved["seed"],
        "precision": resolved["precision"],
        "dataset.name": resolved["dataset"]["name"],
        "dataset.augment": resolved["dataset"]["augment"],
        # Older runs do not say these two.
        "dataset.image_size": resolved["dataset"].get("image_size"),
        "dataset.streaming": resolved["dataset"].get("streaming", "auto"),
        "protocol.class_order_seed": protocol["class_order_seed"],
        "classes of the base task": protocol["base"] or protocol["increment"],
        "backbone.name": resolved["backbone"]["name"],
        "schedule.batch_size": schedule["batch_size"],
        **{f"schedule.base.{name}": value for name, value in schedule["base"].items()},
    }


def load(source: pathlib.Path, resolved: dict, net: Network, task: Task, mesh) -> Variables:
    """The trained variables of the base `task` of the run in `source`, for the network `net`.

    Raises UserError if there is no such run, if it has not finished or cannot be read, and with
    the differences listed if it learned another base task than `resolved` asks for.
    """
    there = _resolved(source)
    wanted = terms(json.loads(json.dumps(resolved)))
    found = terms(there)
    differing = [
        f"{name}: {found.get(name)} there, {value} here"
        for name, value in wanted.items()
        if found.get(name) != value
    ]
    if differing:
        raise UserError(
            f"base_from: {source} has learned another base task ({'; '.join(differing)}); "
            f"use a run with the same terms or unset --config.base_from"
        )
    try:
        method, backbone = methods.get(there["method"]["name"]), there["backbone"]
        other = memory_plan.network_of(method, backbone["name"], backbone["cut"], net.image_shape)
    except UserError as error:
        raise UserError(f"base_from: the network of {source} cannot be made: {error}") from error
    size = there["memory"]["exemplars"]
    memory = Memory(
        jax.ShapeDtypeStruct((size, *net.image_shape), np.uint8),
        jax.ShapeDtypeStruct((size,), np.int32),
    )
    abstract = abstract_arrays(other, (task,), memory)
    return net.adopt(checkpoints.load_task(source, task, abstract, mesh))


def _resolved(source: pathlib.Path) -> dict:
    """The resolved config of the run in `source`, with all that is read from it."""
    path = source / "config.json"
    try:
        there = json.loads(path.read_text())["resolved"]
        terms(there)
        _ = there["method"]["name"], there["backbone"]["cut"], int(there["memory"]["exemplars"])
    except FileNotFoundError as error:
        raise UserError(f"base_from: there is no run in {source} (no config.json)") from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f"base_from: {path} is not a config of this version of the program ({error!r})"
        ) from error
    return there
