"""Performance over memory, CIFAR-100 Base0 Inc10: five methods at five points.

Ten ConvNets are smaller than one ResNet32: at the first point that is what all are aligned to.

`curve_cifar.py:short` is not the paper's: small networks, few epochs and Base0 Inc20, an hour on a
CPU. It shows that the five methods learn as they should.
"""

from configs import cifar_b0i10, cifar_b0i20, studies

POINTS = {
    7.6: ("convnet2", "replay:resnet32"),
    12.4: ("resnet14", "der:resnet14"),
    16.0: ("resnet20", "der:resnet20"),
    19.8: ("resnet26", "der:resnet26"),
    23.5: ("resnet32", "der:resnet32"),
}


SHORT = {
    6.6: ("convnet2", "der:convnet2"),
    7.3: ("resnet8", "der:resnet8"),
    9.1: ("resnet14", "der:resnet14"),
}


def get_config(scale="paper"):
    if scale != studies.SHORT:
        return studies.curve(scale, cifar_b0i10, POINTS, single="resnet32")
    config = studies.curve("paper", cifar_b0i20, SHORT, single="resnet8")
    config.study.scale = studies.SHORT
    config.study.title += ", small networks and few epochs"
    config.schedule.base_epochs = 5
    config.schedule.base_milestones = (3, 4)
    config.schedule.later_epochs = 2
    config.schedule.later_milestones = (1,)
    return config
