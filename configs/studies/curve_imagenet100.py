"""Performance over memory, ImageNet-100 Base50 Inc5: five methods at six points.

Eleven ConvNets are smaller than one ResNet18: at the first point that is what all are aligned to.
"""

from configs import imagenet100_b50i5, studies

POINTS = {
    329.0: ("convnet4", "replay:resnet18"),
    493.0: ("resnet10", "der:resnet10"),
    755.0: ("resnet18", "der:resnet18"),
    872.0: ("resnet26_imagenet", "der:resnet26_imagenet"),
    1180.0: ("resnet34", "der:resnet34"),
    1273.0: ("resnet50", "der:resnet50"),
}


def get_config(scale="paper"):
    return studies.curve(scale, imagenet100_b50i5, POINTS, single="resnet18")
