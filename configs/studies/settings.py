"""The six settings of the paper's main tables with its five methods, at the memory of DER."""

from configs import (
    base,
    cifar_b0i5,
    cifar_b0i10,
    cifar_b50i5,
    cifar_b50i10,
    imagenet100_b50i5,
    imagenet1000_b0i100,
    studies,
)
from memo_jax.study import declare, product


def get_config(scale="paper"):
    config = studies.start(scale, base)
    settings = studies.axis_of_settings(
        scale,
        cifar100_b0i5=cifar_b0i5,
        cifar100_b0i10=cifar_b0i10,
        cifar100_b50i5=cifar_b50i5,
        cifar100_b50i10=cifar_b50i10,
        imagenet100_b50i5=imagenet100_b50i5,
        imagenet1000_b0i100=imagenet1000_b0i100,
    )
    return declare(
        config,
        kind="settings",
        title="Five methods at the memory of DER",
        scale=scale,
        cases=product(settings, studies.METHODS),
    )
