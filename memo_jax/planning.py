"""From the config to a plan: every name looked up, every number known, before any work."""

import dataclasses
import logging
import math

import jax.numpy as jnp
from ml_collections import ConfigDict

from memo_jax import (
    augment,
    backbones,
    budget,
    datasets,
    exemplars,
    memory_plan,
    methods,
    parallel,
    protocol,
)
from memo_jax.datasets import Dataset
from memo_jax.errors import UserError, expect_one_of
from memo_jax.methods import base as method_base
from memo_jax.network import Network
from memo_jax.optimizers import Schedule

log = logging.getLogger("memo_jax")

TRUNK_LEARNS_UP_TO = 20
"""Base classes up to which train_trunk "auto" lets the trunk learn (the paper's threshold)."""

LOOPS = ("auto", "python", "scan")
PRECISIONS = {"float32": jnp.float32, "bfloat16": jnp.bfloat16}


@dataclasses.dataclass(frozen=True)
class Plan:
    """What a run will do, free of the config's strings and placeholders.

    ledger: what it holds at the end of the whole stream. allocation: how slots are dealt to
    classes (exemplars.shares).
    """

    tasks: tuple[protocol.Task, ...]
    method: method_base.Method
    options: method_base.Options
    net: Network
    schedules: tuple[Schedule, Schedule]
    ledger: budget.Ledger
    allocation: str

    def schedule(self, task: protocol.Task) -> Schedule:
        """How `task` is trained: as the base task or as a later one."""
        return self.schedules[0 if task.is_base else 1]

    def epochs_until(self, task: protocol.Task, epochs: int) -> int:
        """Epochs of the whole run up to the first `epochs` of `task`: the axis of its curves."""
        return sum(self.schedule(before).epochs for before in self.tasks[: task.index]) + epochs


NUMBERS = {
    "seed": (0, 2**32 - 1),
    "protocol.class_order_seed": (0, 2**32 - 1),
    "protocol.base": (0, None),
    "protocol.increment": (1, None),
    "method.alpha_aux": (0, None),
    "method.temperature": (1e-6, None),
    "memory.base_exemplars": (0, None),
    "schedule.batch_size": (1, None),
    "train.eval_batch_size": (1, None),
    "checkpoints.every_epochs": (1, None),
}
"""Settings that must be numbers: the least and, where there is one, the greatest value."""


def check(config: ConfigDict, num_devices: int) -> None:
    """Raises UserError for what is wrong whatever the dataset holds."""
    for field, (least, most) in NUMBERS.items():
        _expect_number(field, _get(config, field), least, math.inf if most is None else most)
    names = {
        "dataset.name": datasets.names(),
        "dataset.augment": augment.AUGMENTATIONS,
        "dataset.on_bad_image": datasets.ON_BAD_IMAGE,
        "dataset.streaming": datasets.STREAMING,
        "backbone.name": backbones.builders(),
        "method.name": methods.names(),
        "method.train_trunk": ("auto", "true", "false"),
        "method.block_init": ("previous", "fresh"),
        "method.distill_weight": ("auto", "sum", "convex"),
        "memory.selection": exemplars.SELECTIONS,
        "memory.allocation": exemplars.ALLOCATIONS,
        "memory.placement": parallel.PLACEMENTS,
        "schedule.name": method_base.SCHEDULES,
        "train.loop": LOOPS,
        "precision": PRECISIONS,
    }
    for field, known in names.items():
        expect_one_of(field, _get(config, field), known)
    batch = config.schedule.batch_size
    if batch % num_devices:
        raise UserError(
            f"schedule.batch_size: expected a multiple of the {num_devices} devices, "
            f"found {batch}; set --config.schedule.batch_size"
        )
    if config.dataset.image_size is not None:
        _expect_number("dataset.image_size", config.dataset.image_size, 1, math.inf)
    if config.dataset.workers is not None:
        _expect_number("dataset.workers", config.dataset.workers, 0, math.inf)
    if config.memory.exemplars:
        _expect_number("memory.exemplars", config.memory.exemplars, 1, math.inf)
    if config.protocol.stop_after is not None:
        _expect_number("protocol.stop_after", config.protocol.stop_after, 1, math.inf)
    if config.memory.total_mb is not None:
        _expect_number("memory.total_mb", config.memory.total_mb, 0, math.inf)
    memory_plan.reference(config.memory.align_to, config.backbone.name)


def _get(config: ConfigDict, field: str):
    for name in field.split("."):
        config = config[name]
    return config


def _expect_number(field: str, value, least: float, most: float) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not (least <= value <= most) or math.isinf(value):
        upper = "" if math.isinf(most) else f" and at most {most}"
        raise UserError(
            f"{field}: expected a number of at least {least}{upper}, found {value!r}; "
            f"set --config.{field}"
        )


def make(config: ConfigDict, dataset: Dataset) -> Plan:
    """The plan of a checked config for a dataset. Raises UserError for what does not fit it."""
    tasks = protocol.split(dataset.num_classes, config.protocol.base, config.protocol.increment)
    method = methods.get(config.method.name)
    backbone, memory = config.backbone, config.memory
    stream = memory_plan.Stream(
        dataset.image_shape, dataset.num_classes, len(tasks), len(dataset.train)
    )
    wish = memory_plan.Budget(
        memory.exemplars, memory.total_mb, memory.align_to, memory.base_exemplars
    )
    net = memory_plan.network_of(method, backbone.name, backbone.cut, stream.image_shape)
    return Plan(
        tasks=tasks[: config.protocol.stop_after],
        method=method,
        options=_options(config, tasks[0]),
        net=dataclasses.replace(net, compute=PRECISIONS[config.precision]),
        schedules=_schedules(config, method),
        ledger=memory_plan.ledger(method, backbone.name, backbone.cut, stream, wish),
        allocation="everything" if method.keeps == "everything" else memory.allocation,
    )


def _options(config: ConfigDict, base_task: protocol.Task) -> method_base.Options:
    options = {name: value for name, value in config.method.items() if name != "name"}
    options["train_trunk"] = {
        "true": True,
        "false": False,
        "auto": base_task.num_new <= TRUNK_LEARNS_UP_TO,
    }[config.method.train_trunk]
    return method_base.Options(**options)


def _schedules(config: ConfigDict, method: method_base.Method) -> tuple[Schedule, Schedule]:
    """The named schedules with the config's own numbers put in."""
    named = method_base.schedules(method, config.schedule.name)
    return tuple(_schedule(config, part, own) for part, own in zip(("base", "later"), named))


def _schedule(config: ConfigDict, part: str, named: Schedule) -> Schedule:
    """The schedule of the base task or the later ones (`part`)."""
    wishes = config.schedule
    own = {
        "learning_rate": wishes.learning_rate,
        "epochs": wishes[f"{part}_epochs"],
        "milestones": wishes[f"{part}_milestones"],
        "weight_decay": wishes[f"{part}_weight_decay"],
    }
    own = {name: value for name, value in own.items() if value is not None}
    if "epochs" in own and "milestones" not in own:
        own["milestones"] = tuple(m for m in named.milestones if m < own["epochs"])
        if own["milestones"] != named.milestones:
            log.warning(
                "schedule.%s_epochs: the rate of %d epochs falls after %s only; "
                "schedule.%s_milestones sets other milestones",
                part,
                own["epochs"],
                own["milestones"] or "none of them",
                part,
            )
    try:
        return dataclasses.replace(named, **own)
    except UserError as error:
        raise UserError(
            f"{error} (--config.schedule.{part}_epochs, {part}_milestones, ...)"
        ) from error


def resolved(config: ConfigDict, plan: Plan) -> dict:
    """The config as a plain tree with every placeholder replaced by what it became."""
    tree = config.to_dict()
    tree["dataset"]["image_size"] = plan.net.image_shape[0]
    tree["method"] |= dataclasses.asdict(plan.options)
    tree["memory"]["exemplars"] = plan.ledger.exemplars
    tree["memory"]["total_mb"] = plan.ledger.as_dict()["total_mb"]
    base, later = plan.schedules
    tree["schedule"] |= {"base": dataclasses.asdict(base), "later": dataclasses.asdict(later)}
    for part in ("base", "later"):
        for name in ("epochs", "milestones", "weight_decay"):
            del tree["schedule"][f"{part}_{name}"]
    del tree["schedule"]["learning_rate"]
    return tree
