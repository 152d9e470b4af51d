"""MEMO after base tasks of 5 to 50 classes, its trunk frozen or trained (CIFAR-100, Inc5)."""

from configs import cifar_b0i5, studies
from memo_jax.study import Case, declare, product

SIZES = {"paper": (5, 10, 20, 25, 30, 35, 40, 50), "digits": (5, 7)}


def get_config(scale="paper"):
    config = studies.start(scale, cifar_b0i5)
    bases = [Case(f"base{n}", {"protocol.base": n}, {"base": n}) for n in SIZES[scale]]
    return declare(
        config,
        kind="base_classes",
        title="MEMO after base tasks of different sizes",
        scale=scale,
        cases=product(bases, studies.TRUNK),
    )
