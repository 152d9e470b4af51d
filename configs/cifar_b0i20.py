"""CIFAR-100, Base0 Inc20, ResNet32, memory aligned to DER."""

from configs import base


def get_config(method="memo"):
    config = base.get_config(method)
    config.protocol.base = 0
    config.protocol.increment = 20
    return config
