"""Studies: sets of runs, most of them the paper's. What several of the files here share.

`FILE.py` is the study at full size; `FILE.py:digits` its small twin, which shows in a minute that
everything works, but has no meaning. Some have a size in between, `FILE.py:short`.
"""

from configs import base
from memo_jax.errors import UserError, near
from memo_jax.study import PAPER, Case, changes, declare

DIGITS = "digits"
SHORT = "short"

METHODS = [Case(name, {"method.name": name}) for name in ("replay", "icarl", "wa", "der", "memo")]
"""The five methods of the paper, in the order of its tables."""

FEW = [case for case in METHODS if case.name in ("replay", "memo")]
"""Of those, one that keeps one network and one that grows: enough for most twins."""

TRUNK = [
    Case("trunk-frozen", {"method.train_trunk": "false"}, {"trunk": "frozen"}),
    Case("trunk-trained", {"method.train_trunk": "true"}, {"trunk": "trained"}),
]


def start(scale: str, experiment):
    """The config that all runs start from: that of the module `experiment`, or a tiny one.

    The twins have much in common, so that few programs are compiled for all of them.
    """
    if scale == PAPER:
        return experiment.get_config()
    if scale != DIGITS:
        raise UserError(f"there is no scale {scale!r}; {near(scale, (PAPER, DIGITS))}")
    config = base.get_config()
    config.dataset.name = "digits"
    config.dataset.augment = "shift"
    config.protocol.increment = 5
    config.backbone.name = "convnet2"
    config.memory.exemplars = 100
    config.schedule.batch_size = 64
    config.schedule.base_epochs = 1
    config.schedule.base_milestones = ()
    config.schedule.later_epochs = 1
    config.schedule.later_milestones = ()
    return config


def axis_of_settings(scale: str, **experiments) -> list[Case]:
    """The benchmark settings: what each module of configs/ changes in the defaults."""
    if scale == DIGITS:
        return [Case("digits-b0i5", {"protocol.increment": 5})]
    return [
        Case(name.replace("_", "-"), changes(module.get_config(), base.get_config()))
        for name, module in experiments.items()
    ]


def curve(scale: str, experiment, points: dict[float, tuple[str, str]], single: str):
    """The study of a performance-memory curve: the five methods at each point.

    points: megabytes -> the backbone of the methods that grow, and what all are aligned to.
    single: the backbone of the others, at all points.
    """
    config, methods = start(scale, experiment), METHODS
    if scale == DIGITS:
        methods = FEW
        points = {0.29: ("convnet2", "memo:convnet2"), 0.38: ("convnet2", "der:resnet8")}
        single = "convnet2"
        config.memory.exemplars, config.memory.base_exemplars = None, 100
    cases = [
        Case(
            f"{megabytes:g}mb-{method.name}",
            {
                **method.settings,
                "backbone.name": backbone if method.name in ("der", "memo") else single,
                "memory.align_to": align_to,
            },
            {"total_mb": megabytes},
        )
        for megabytes, (backbone, align_to) in points.items()
        for method in methods
    ]
    return declare(config, kind="curve", title="Performance over memory", scale=scale, cases=cases)
