"""MEMO cut at different depths, at the memory of DER (CIFAR-100 Base0 Inc10, ResNet32).

Of ResNet32's fifteen residual blocks `memo` specializes the last five, `memo-2` ten, `memo-3` all.
"""

from configs import cifar_b0i10, studies
from memo_jax.study import Case, declare

CUTS = {
    "paper": ("memo-3", "b3", "memo-2", "b8", "memo", "b12", "b14"),
    "digits": ("memo-2", "memo"),
}


def get_config(scale="paper"):
    config = studies.start(scale, cifar_b0i10)
    if scale == studies.DIGITS:
        config.backbone.name = "resnet8"
    return declare(
        config,
        kind="cuts",
        title="MEMO cut at different depths",
        scale=scale,
        cases=[Case(cut, {"backbone.cut": cut}, {"cut": cut}) for cut in CUTS[scale]],
    )
