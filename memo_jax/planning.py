"""From the config to a plan: every name looked up, every number known, before any work."""

import dataclasses

from ml_collections import ConfigDict

from memo_jax import augment, backbones, budget, datasets, exemplars, methods, network, protocol
from memo_jax.datasets import Dataset
from memo_jax.errors import UserError, expect_one_of
from memo_jax.methods import base as method_base
from memo_jax.optimizers import Schedule

TRUNK_LEARNS_UP_TO = 20
"""Base classes up to which train_trunk "auto" lets the trunk learn (the paper's threshold)."""

LOOPS = ("auto", "python", "scan")


@dataclasses.dataclass(frozen=True)
class Plan:
    """What a run will do, free of the config's strings and placeholders."""

    tasks: tuple[protocol.Task, ...]
    method: method_base.Method
    options: method_base.Options
    net: network.Network
    schedules: tuple[Schedule, Schedule]
    ledger: budget.Ledger

    def schedule(self, task: protocol.Task) -> Schedule:
        """How `task` is trained: as the base task or as a later one."""
        return self.schedules[0 if task.is_base else 1]

    def epochs_until(self, task: protocol.Task, epochs: int) -> int:
        """Epochs of the whole run up to the first `epochs` of `task`: the axis of its curves."""
        return sum(self.schedule(before).epochs for before in self.tasks[: task.index]) + epochs


def check(config: ConfigDict, num_devices: int) -> None:
    """Raises UserError for what is wrong whatever the dataset holds."""
    expect_one_of("dataset.name", config.dataset.name, datasets.names())
    augment.get(config.dataset.augment)
    backbones.get(config.backbone.name)
    methods.get(config.method.name)
    exemplars.check(config.memory.selection, config.memory.allocation)
    expect_one_of("method.train_trunk", config.method.train_trunk, ("auto", "true", "false"))
    expect_one_of("method.block_init", config.method.block_init, ("previous", "fresh"))
    expect_one_of("schedule.name", config.schedule.name, method_base.SCHEDULES)
    expect_one_of("train.loop", config.train.loop, LOOPS)
    batch = config.schedule.batch_size
    if batch < 1 or batch % num_devices:
        raise UserError(
            f"schedule.batch_size: expected a positive multiple of the {num_devices} devices, "
            f"found {batch}; set --config.schedule.batch_size"
        )
    for field in ("train.eval_batch_size", "checkpoints.every_epochs"):
        section, name = field.split(".")
        if config[section][name] < 1:
            raise UserError(f"{field}: expected at least 1, found {config[section][name]}")


def make(config: ConfigDict, dataset: Dataset) -> Plan:
    """The plan of a checked config for a dataset. Raises UserError for what does not fit it."""
    tasks = protocol.split(dataset.num_classes, config.protocol.base, config.protocol.increment)
    method = methods.get(config.method.name)
    net = network.build(
        backbones.get(config.backbone.name), dataset.image_shape, config.backbone.cut, method.grows
    )
    parameters = net.num_parameters(len(tasks))
    size = _exemplars(config, net, len(tasks), parameters)
    budget.check(size, dataset.num_classes)
    return Plan(
        tasks=tasks,
        method=method,
        options=_options(config, tasks[0]),
        net=net,
        schedules=_schedules(config, method),
        ledger=budget.Ledger(size, parameters, budget.image_bytes(dataset.image_shape)),
    )


def _exemplars(config: ConfigDict, net: network.Network, num_tasks: int, parameters: int) -> int:
    """The number of exemplars that the config's budget gives a network of `parameters`."""
    memory = config.memory
    if memory.exemplars is not None and memory.total_mb is not None:
        raise UserError(
            "memory: expected one budget, found both memory.exemplars and memory.total_mb; "
            "set only one of them"
        )
    if memory.exemplars is not None:
        return memory.exemplars
    if memory.total_mb is not None:
        return budget.exemplars_within(memory.total_mb, parameters, net.image_shape)
    other = methods.get(memory.align_to)
    reference = network.build(net.backbone, net.image_shape, config.backbone.cut, other.grows)
    spared = reference.num_parameters(num_tasks) - parameters
    return budget.aligned_exemplars(memory.base_exemplars, spared, net.image_shape)


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
    wishes = config.schedule
    schedules = []
    named = method_base.schedules(method, wishes.name)
    for part, schedule in zip(("base", "later"), named):
        own = {
            "learning_rate": wishes.learning_rate,
            "epochs": wishes[f"{part}_epochs"],
            "milestones": wishes[f"{part}_milestones"],
            "weight_decay": wishes[f"{part}_weight_decay"],
        }
        own = {name: value for name, value in own.items() if value is not None}
        schedules.append(dataclasses.replace(schedule, **own))
    return tuple(schedules)


def resolved(config: ConfigDict, plan: Plan) -> dict:
    """The config as a plain tree with every placeholder replaced by what it became."""
    tree = config.to_dict()
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
