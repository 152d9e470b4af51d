"""CIFAR-100, Base80 Inc5, ResNet32, memory aligned to DER."""

from configs import base


def get_config(method="memo"):
    config = base.get_config(method)
    config.protocol.base = 80
    config.protocol.increment = 5
    return config
