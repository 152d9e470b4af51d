"""Inception-V3 (Szegedy et al. 2016) in torchvision's layout, whose branch names it keeps.

Without auxiliary classifier, input transform and dropout; 2048 features. The eleven Mixed blocks
are three stages by the size of their map. May be cut after any of them (`b1`, `b2`, ...) and
after the stages: `memo` (the last stage is specialized), `memo-2` (the last two), `memo-3` (all
three). Not in the published code.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp

from memo_jax.backbones.base import Backbone, GlobalPool
from memo_jax.backbones.layers import BatchNorm, conv, fan_out_normal, max_pool, relu

Step = tuple[int, ...] | tuple[tuple[int, ...], tuple[int, ...]]
"""Arguments of one Cell, or of two over the same input whose outputs are joined."""


class Cell(nn.Module):
    """Convolution, BatchNorm with epsilon 0.001, ReLU.

    Padded so that the map keeps its size; without padding at stride 2 or if not `padded`.
    """

    channels: int
    height: int
    width: int
    stride: int = 1
    padded: bool = True

    @nn.compact
    def __call__(self, x: jax.Array, train: bool, mask: jax.Array | None = None) -> jax.Array:
        window = (self.height, self.width)
        keeps_size = self.padded and self.stride == 1
        padding = (self.height // 2, self.width // 2) if keeps_size else 0
        x = conv(self.channels, window, self.stride, padding, name="conv")(x)
        return relu(BatchNorm(1e-3, name="bn")(x, train, mask))


class Stem(nn.Module):
    """Five convolutions and two max-pools, to 192 channels and an eighth of the image's sides."""

    @nn.compact
    def __call__(self, x: jax.Array, train: bool, mask: jax.Array | None = None) -> jax.Array:
        x = Cell(32, 3, 3, stride=2, name="conv_1a")(x, train, mask)
        x = Cell(32, 3, 3, padded=False, name="conv_2a")(x, train, mask)
        x = Cell(64, 3, 3, name="conv_2b")(x, train, mask)
        x = max_pool(x, 3, 2)
        x = Cell(80, 1, 1, name="conv_3b")(x, train, mask)
        x = Cell(192, 3, 3, padded=False, name="conv_4a")(x, train, mask)
        return max_pool(x, 3, 2)


class Mixed(nn.Module):
    """Branches of convolutions and one that pools, over the same input, joined on the channels.

    branches: (name, steps in turn). pooled: channels of the 1 x 1 convolution that follows
    average pooling; None for a block that halves the map, which max-pools.
    """

    branches: tuple[tuple[str, tuple[Step, ...]], ...]
    pooled: int | None = None

    @nn.compact
    def __call__(self, x: jax.Array, train: bool, mask: jax.Array | None = None) -> jax.Array:
        def run(x, name, step):
            if isinstance(step[0], tuple):
                both = [run(x, f"{name}{letter}", cell) for letter, cell in zip("ab", step)]
                return jnp.concatenate(both, axis=-1)
            return Cell(*step, name=name)(x, train, mask)

        outs = []
        for branch, steps in self.branches:
            out = x
            for number, step in enumerate(steps, start=1):
                out = run(out, f"{branch}_{number}" if len(steps) > 1 else branch, step)
            outs.append(out)
        if self.pooled is None:
            outs.append(max_pool(x, 3, 2))
        else:
            mean = nn.avg_pool(x, (3, 3), (1, 1), [(1, 1), (1, 1)])  # of nine, padding included
            outs.append(run(mean, "branch_pool", (self.pooled, 1, 1)))
        return jnp.concatenate(outs, axis=-1)


def mixed_5(pooled: int) -> Mixed:
    """A block of the first stage, whose map is 35 x 35 for images of 299 pixels."""
    branches = (
        ("branch1x1", ((64, 1, 1),)),
        ("branch5x5", ((48, 1, 1), (64, 5, 5))),
        ("branch3x3dbl", ((64, 1, 1), (96, 3, 3), (96, 3, 3))),
    )
    return Mixed(branches, pooled)


def mixed_6(channels: int) -> Mixed:
    """A block of the second stage (17 x 17); a 7 x 7 window is a row and a column in turn."""
    inner, row, column = (channels, 1, 1), (channels, 1, 7), (channels, 7, 1)
    branches = (
        ("branch1x1", ((192, 1, 1),)),
        ("branch7x7", (inner, row, (192, 7, 1))),
        ("branch7x7dbl", (inner, column, row, column, (192, 1, 7))),
    )
    return Mixed(branches, pooled=192)


def mixed_7() -> Mixed:
    """A block of the third stage (8 x 8); a 3 x 3 window is a row beside a column."""
    row_and_column = ((384, 1, 3), (384, 3, 1))
    branches = (
        ("branch1x1", ((320, 1, 1),)),
        ("branch3x3", ((384, 1, 1), row_and_column)),
        ("branch3x3dbl", ((448, 1, 1), (384, 3, 3), row_and_column)),
    )
    return Mixed(branches, pooled=192)


HALVES_TO_6 = (
    ("branch3x3", ((384, 3, 3, 2),)),
    ("branch3x3dbl", ((64, 1, 1), (96, 3, 3), (96, 3, 3, 2))),
)
HALVES_TO_7 = (
    ("branch3x3", ((192, 1, 1), (320, 3, 3, 2))),
    ("branch7x7x3", ((192, 1, 1), (192, 1, 7), (192, 7, 1), (192, 3, 3, 2))),
)
UNITS = (
    ("stem", Stem()),
    ("mixed_5b", mixed_5(32)),
    ("mixed_5c", mixed_5(64)),
    ("mixed_5d", mixed_5(64)),
    ("mixed_6a", Mixed(HALVES_TO_6)),
    ("mixed_6b", mixed_6(128)),
    ("mixed_6c", mixed_6(160)),
    ("mixed_6d", mixed_6(160)),
    ("mixed_6e", mixed_6(192)),
    ("mixed_7a", Mixed(HALVES_TO_7)),
    ("mixed_7b", mixed_7()),
    ("mixed_7c", mixed_7()),
    ("pool", GlobalPool()),
)
LAST_OF_TRUNK = {"memo": "mixed_6e", "memo-2": "mixed_5d", "memo-3": "stem"}


def inception_v3() -> Backbone:
    """All of it; below 75 pixels a side the last stage would have no position left."""
    names = [name for name, _ in UNITS]
    cuts = {cut: names.index(last) + 1 for cut, last in LAST_OF_TRUNK.items()}
    cuts |= {f"b{i}": 1 + i for i in range(1, len(UNITS) - 2)}
    return Backbone("inception_v3", UNITS, cuts, 2048, fan_out_normal, min_size=75)


BACKBONES = {"inception_v3": inception_v3}
