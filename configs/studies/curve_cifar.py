"""Performance over memory, CIFAR-100 Base0 Inc10: five methods at five points.

Ten ConvNets are smaller than one ResNet32: at the first point that is what all are aligned to.
"""

from configs import cifar_b0i10, studies

POINTS = {
    7.6: ("convnet2", "replay:resnet32"),
    12.4: ("resnet14", "der:resnet14"),
    16.0: ("resnet20", "der:resnet20"),
    19.8: ("resnet26", "der:resnet26"),
    23.5: ("resnet32", "der:resnet32"),
}


def get_config(scale="paper"):
    return studies.curve(scale, cifar_b0i10, POINTS, single="resnet32")
