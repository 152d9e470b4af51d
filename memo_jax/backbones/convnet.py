"""The plain convolutional networks of the published code: convnet2 (CIFAR), convnet4 (ImageNet).

A stage is one convolution, BatchNorm, ReLU and a max-pool. May be cut after any stage: `b1`,
`b2`, ... count them, `memo` leaves the last one to the block, `memo-2` and `memo-3` the last two
and three.

The published code averages a window that is the whole map at 32 and at 224 pixels; here it is
always the whole map. It leaves the initial weights to PyTorch (uniform by fan-in); here they are
those of the ResNets, a scale that the BatchNorm after each convolution takes out again.
"""

import flax.linen as nn
import jax

from memo_jax.backbones.base import Backbone, GlobalPool
from memo_jax.backbones.layers import BatchNorm, conv, fan_out_normal, max_pool, relu


class Stage(nn.Module):
    """A convolution with bias, padded to keep the map at stride 1, BatchNorm, ReLU, max-pool 2."""

    channels: int
    window: int = 3
    stride: int = 1

    @nn.compact
    def __call__(self, x: jax.Array, train: bool, mask: jax.Array | None = None) -> jax.Array:
        padding = self.window // 2
        x = conv(self.channels, self.window, self.stride, padding, bias=True, name="conv")(x)
        return max_pool(relu(BatchNorm(name="bn")(x, train, mask)), 2, 2)


def of_stages(name: str, stages: tuple[Stage, ...], min_size: int) -> Backbone:
    """A backbone of `stages` and global pooling."""
    units = [(f"stage{number}", stage) for number, stage in enumerate(stages, start=1)]
    last = len(stages) - 1
    cuts = {"memo": last, "memo-2": last - 1, "memo-3": last - 2}
    cuts |= {f"b{number}": number for number in range(1, len(stages))}
    cuts = {cut: units_in_trunk for cut, units_in_trunk in cuts.items() if units_in_trunk > 0}
    units.append(("pool", GlobalPool()))
    return Backbone(name, tuple(units), cuts, stages[-1].channels, fan_out_normal, min_size)


def convnet2() -> Backbone:
    """Two stages of 64 channels."""
    return of_stages("convnet2", (Stage(64), Stage(64)), min_size=4)


def convnet4() -> Backbone:
    """Four stages, of 128 channels and 512 in the last; the first has a 7 x 7 window, stride 2."""
    stages = (Stage(128, window=7, stride=2), Stage(128), Stage(128), Stage(512))
    return of_stages("convnet4", stages, min_size=31)


BACKBONES = {"convnet2": convnet2, "convnet4": convnet4}
