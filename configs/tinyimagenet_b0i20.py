"""Tiny-ImageNet (64 x 64; not in the paper), Base0 Inc20, ResNet18, memory aligned to DER."""

from configs import base


def get_config(method="memo"):
    config = base.get_config(method)
    config.dataset.name = "tinyimagenet"
    config.dataset.augment = "imagenet"
    config.protocol.increment = 20
    config.backbone.name = "resnet18"
    return config
