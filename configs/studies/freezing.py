"""MEMO with trunk and old blocks each frozen or trained, after a small and a large base task."""

from configs import base, cifar_b0i10, cifar_b50i10, studies
from memo_jax.study import Case, declare, product

BLOCKS = [
    Case("blocks-frozen", {"method.train_old_blocks": False}, {"blocks": "frozen"}),
    Case("blocks-trained", {"method.train_old_blocks": True}, {"blocks": "trained"}),
]


def get_config(scale="paper"):
    config = studies.start(scale, base)
    settings = studies.axis_of_settings(
        scale, cifar100_b0i10=cifar_b0i10, cifar100_b50i10=cifar_b50i10
    )
    return declare(
        config,
        kind="freezing",
        title="MEMO with trunk and old blocks frozen or trained",
        scale=scale,
        cases=product(settings, studies.TRUNK, BLOCKS),
    )
