"""The ResNets for 32 x 32 images: depth 6n + 2, 16-32-64 channels, shortcuts without weights.

May be cut after the stem, after any residual block (`b1`, `b2`, ...) and after the stages:
`memo` (the last stage is specialized), `memo-2` (the last two), `memo-3` (all three).
"""

import flax.linen as nn
import jax
import jax.numpy as jnp

from memo_jax.backbones.base import Backbone, GlobalPool
from memo_jax.backbones.layers import BatchNorm, conv, fan_out_normal, relu

DEPTHS = (8, 14, 20, 26, 32, 44, 56, 110)
WIDTHS = (16, 32, 64)


class Stem(nn.Module):
    """3 x 3 convolution to 16 channels, BatchNorm, ReLU."""

    @nn.compact
    def __call__(self, x: jax.Array, train: bool, mask: jax.Array | None = None) -> jax.Array:
        x = conv(WIDTHS[0], 3, padding=1, name="conv")(x)
        return relu(BatchNorm(name="bn")(x, train, mask))


class BasicBlock(nn.Module):
    """Two 3 x 3 convolutions; a shortcut that halves the image appends zero channels."""

    channels: int
    stride: int

    @nn.compact
    def __call__(self, x: jax.Array, train: bool, mask: jax.Array | None = None) -> jax.Array:
        y = conv(self.channels, 3, self.stride, padding=1, name="conv_a")(x)
        y = relu(BatchNorm(name="bn_a")(y, train, mask))
        y = conv(self.channels, 3, padding=1, name="conv_b")(y)
        y = BatchNorm(name="bn_b")(y, train, mask)
        if self.stride > 1:
            x = x[:, :: self.stride, :: self.stride]
            x = jnp.pad(x, ((0, 0), (0, 0), (0, 0), (0, self.channels - x.shape[-1])))
        return relu(x + y)


def build(depth: int) -> Backbone:
    """A CIFAR ResNet of one of DEPTHS."""
    blocks_per_stage = (depth - 2) // 6
    units = [("stem", Stem())]
    for stage, channels in enumerate(WIDTHS, start=1):
        for block in range(blocks_per_stage):
            stride = 2 if stage > 1 and block == 0 else 1
            units.append((f"stage{stage}_block{block}", BasicBlock(channels, stride)))
    n = blocks_per_stage
    cuts = {"memo": 1 + 2 * n, "memo-2": 1 + n, "memo-3": 1}
    cuts |= {f"b{i}": 1 + i for i in range(1, 3 * n)}
    units.append(("pool", GlobalPool()))
    return Backbone(f"resnet{depth}", tuple(units), cuts, WIDTHS[-1], fan_out_normal)


BACKBONES = {f"resnet{depth}": lambda depth=depth: build(depth) for depth in DEPTHS}
