"""How to share a budget between model and exemplars: larger networks, fewer exemplars.

The methods that keep one network, at 12.4 and 23.5 MB on CIFAR-100 Base0 Inc10. The paper speaks
of rho, the model's share of all bytes; the label `share` is that of the exemplars, 1 - rho.
"""

from configs import cifar_b0i10, studies
from memo_jax.study import Case, declare, product

BUDGETS = {"paper": (12.4, 23.5), "digits": (0.1504, 0.2323)}
BACKBONES = {
    "paper": {
        "resnet32": 463_504,
        "resnet44": 657_936,
        "resnet56": 852_368,
        "resnet110": 1_727_312,
    },
    "digits": {"convnet2": 37_824},
}
"""The parameters of each."""


def get_config(scale="paper"):
    config = studies.start(scale, cifar_b0i10)
    config.memory.exemplars = None
    budgets = [
        Case(
            f"{megabytes:g}mb-{name}",
            {"memory.total_mb": megabytes, "backbone.name": name},
            {"total_mb": megabytes, "share": round(1 - 4 * parameters / 2**20 / megabytes, 4)},
        )
        for megabytes in BUDGETS[scale]
        for name, parameters in BACKBONES[scale].items()
    ]
    names = ("replay",) if scale == studies.DIGITS else ("replay", "icarl", "wa")
    methods = [case for case in studies.METHODS if case.name in names]
    return declare(
        config,
        kind="rho",
        title="A budget shared between model and exemplars",
        scale=scale,
        cases=product(budgets, methods),
    )
