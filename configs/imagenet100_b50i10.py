"""ImageNet-100 (subset of seed 1993), Base50 Inc10, ResNet18, memory aligned to DER."""

from configs import base


def get_config(method="memo"):
    config = base.get_config(method)
    config.dataset.name = "imagenet100"
    config.dataset.augment = "imagenet"
    config.protocol.base = 50
    config.protocol.increment = 10
    config.backbone.name = "resnet18"
    return config
