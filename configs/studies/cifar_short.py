"""Five methods on CIFAR-100 Base0 Inc10 in an hour on a CPU: ResNet14, few epochs, five tasks.

Not the paper's: a check that everything learns as it should, against the published code under the
same schedule.
"""

from configs import cifar_b0i10, studies
from memo_jax.study import declare


def get_config(scale="paper"):
    config = studies.start(scale, cifar_b0i10)
    if scale != studies.DIGITS:
        config.protocol.stop_after = 5
        config.backbone.name = "resnet14"
        config.schedule.base_epochs = 8
        config.schedule.base_milestones = (4, 6)
        config.schedule.later_epochs = 4
        config.schedule.later_milestones = (2, 3)
    return declare(
        config,
        kind="settings",
        title="Five methods, small network and few epochs",
        scale=scale,
        cases=studies.FEW if scale == studies.DIGITS else studies.METHODS,
    )
