"""VGG8 for small images: one convolution a stage, 64-128-256-512-512 channels, 512 features.

Not in the published code; the stages follow from the paper's memory figures and are those of
convnet.py, whose cuts it shares. Every stage halves the map, so images need 32 pixels a side.
"""

from memo_jax.backbones.base import Backbone
from memo_jax.backbones.convnet import Stage, of_stages

WIDTHS = (64, 128, 256, 512, 512)


def vgg8() -> Backbone:
    """Five stages and global pooling in place of VGG's fully connected layers."""
    return of_stages("vgg8", tuple(map(Stage, WIDTHS)), min_size=2 ** len(WIDTHS))


BACKBONES = {"vgg8": vgg8}
