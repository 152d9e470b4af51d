"""The ResNets for large images (He et al. 2016): a 7 x 7 stem, four stages, 64 to 512 channels.

The bottleneck halves the map in its 3 x 3 convolution, as torchvision's and the published code.
`resnet26_imagenet` is so named because resnet26 is a CIFAR ResNet. May be cut after any residual
block (`b1`, `b2`, ...) and after the stages: `memo` (the last stage is specialized), `memo-2`
(the last two), `memo-3` (the last three).
"""

import itertools

import flax.linen as nn
import jax

from memo_jax.backbones.base import Backbone, GlobalPool
from memo_jax.backbones.layers import BatchNorm, conv, fan_out_normal, max_pool, relu

WIDTHS = (64, 128, 256, 512)
BOTTLENECK_EXPANSION = 4


class Stem(nn.Module):
    """7 x 7 convolution and 3 x 3 max-pool, each halving the image."""

    @nn.compact
    def __call__(self, x: jax.Array, train: bool, mask: jax.Array | None = None) -> jax.Array:
        x = conv(WIDTHS[0], 7, stride=2, padding=3, name="conv")(x)
        return max_pool(relu(BatchNorm(name="bn")(x, train, mask)), 3, 2, padding=1)


class Block(nn.Module):
    """A residual block; where the shape changes the shortcut is a 1 x 1 convolution.

    convolutions: (channels, window, stride) of each, in order.
    """

    convolutions: tuple[tuple[int, int, int], ...]

    @nn.compact
    def __call__(self, x: jax.Array, train: bool, mask: jax.Array | None = None) -> jax.Array:
        y = x
        for letter, (channels, window, stride) in zip("abc", self.convolutions):
            y = relu(y) if letter != "a" else y
            y = conv(channels, window, stride, window // 2, name=f"conv_{letter}")(y)
            y = BatchNorm(name=f"bn_{letter}")(y, train, mask)
        if x.shape != y.shape:
            stride = max(stride for _, _, stride in self.convolutions)
            x = conv(y.shape[-1], 1, stride, name="conv_shortcut")(x)
            x = BatchNorm(name="bn_shortcut")(x, train, mask)
        return relu(x + y)


def basic(channels: int, stride: int) -> Block:
    """Two 3 x 3 convolutions."""
    return Block(((channels, 3, stride), (channels, 3, 1)))


def bottleneck(channels: int, stride: int) -> Block:
    """A 3 x 3 convolution between two of 1 x 1, the last with four times the channels."""
    return Block(((channels, 1, 1), (channels, 3, stride), (BOTTLENECK_EXPANSION * channels, 1, 1)))


# Name -> kind of block and how many of it each stage has.
LAYOUTS = {
    "resnet10": (basic, (1, 1, 1, 1)),
    "resnet18": (basic, (2, 2, 2, 2)),
    "resnet34": (basic, (3, 4, 6, 3)),
    "resnet26_imagenet": (bottleneck, (2, 2, 2, 2)),
    "resnet50": (bottleneck, (3, 4, 6, 3)),
}


def build(name: str) -> Backbone:
    """An ImageNet ResNet of one of LAYOUTS."""
    make, blocks = LAYOUTS[name]
    units = [("stem", Stem())]
    for stage, (channels, count) in enumerate(zip(WIDTHS, blocks), start=1):
        for block in range(count):
            stride = 2 if stage > 1 and block == 0 else 1
            units.append((f"stage{stage}_block{block}", make(channels, stride)))
    ends = list(itertools.accumulate(blocks, initial=1))
    cuts = {"memo": ends[3], "memo-2": ends[2], "memo-3": ends[1]}
    cuts |= {f"b{i}": 1 + i for i in range(1, sum(blocks))}
    feature_dim = units[-1][1].convolutions[-1][0]
    units.append(("pool", GlobalPool()))
    return Backbone(name, tuple(units), cuts, feature_dim, fan_out_normal)


BACKBONES = {name: lambda name=name: build(name) for name in LAYOUTS}
