"""ImageNet-1000, Base0 Inc100, ResNet18, memory aligned to DER with 20,000 exemplars."""

from configs import base


def get_config(method="memo"):
    config = base.get_config(method)
    config.dataset.name = "imagenet1000"
    config.dataset.augment = "imagenet_brightness"
    config.protocol.increment = 100
    config.backbone.name = "resnet18"
    config.memory.base_exemplars = 20000
    return config
