"""The backbones in PyTorch: the ResNets for small and for large images, the convnets.

Units and layers are named as memo_jax names its own, so that `weights` is one rule.
"""

import dataclasses
import functools
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

relu = functools.partial(functional.relu, inplace=True)

Convolutions = tuple[tuple[int, int, int], ...]
"""(channels, window, stride) of each, in order."""


@dataclasses.dataclass(frozen=True)
class Backbone:
    """Images `[B, C, H, W]` -> features `[B, feature_dim]`.

    units: name and what makes the unit for an input of so many channels, in running order; a unit
    tells in `channels` how many it gives on.
    """

    units: tuple[tuple[str, Callable[[int], nn.Module]], ...]
    feature_dim: int

    def build(self, in_channels: int) -> list[tuple[str, nn.Module]]:
        """The units for images of `in_channels`, with fresh weights."""
        made, channels = [], in_channels
        for name, make in self.units:
            made.append((name, make(channels)))
            channels = made[-1][1].channels
        return made


def conv(
    in_channels: int, channels: int, window: int = 3, stride: int = 1, bias: bool = False
) -> nn.Conv2d:
    """A convolution that starts from N(0, 2 / (window^2 * channels)); at stride 1 the map stays."""
    layer = nn.Conv2d(in_channels, channels, window, stride, window // 2, bias=bias)
    nn.init.normal_(layer.weight, std=(2 / (window**2 * channels)) ** 0.5)
    if bias:
        nn.init.zeros_(layer.bias)
    return layer


class Stage(nn.Module):
    """A convolution, BatchNorm, ReLU; pool: window, stride and padding of a max-pool after them."""

    def __init__(
        self,
        in_channels: int,
        channels: int,
        window: int = 3,
        stride: int = 1,
        bias: bool = False,
        pool: tuple[int, int, int] | None = None,
    ):
        super().__init__()
        self.channels, self._pool = channels, pool
        self.conv = conv(in_channels, channels, window, stride, bias)
        self.bn = nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        x = relu(self.bn(self.conv(x)))
        return functional.max_pool2d(x, *self._pool) if self._pool else x


class Block(nn.Module):
    """A residual block: conv_a, bn_a, ReLU, conv_b, bn_b, ... beside a shortcut, then ReLU."""

    def __init__(self, in_channels: int, convolutions: Convolutions):
        super().__init__()
        self.channels = in_channels
        self._letters = "abc"[: len(convolutions)]
        for letter, (channels, window, stride) in zip(self._letters, convolutions):
            self.add_module(f"conv_{letter}", conv(self.channels, channels, window, stride))
            self.add_module(f"bn_{letter}", nn.BatchNorm2d(channels))
            self.channels = channels
        self._stride = max(stride for _, _, stride in convolutions)
        self._added = self.channels - in_channels

    def forward(self, x: Tensor) -> Tensor:
        y = x
        for letter in self._letters:
            y = y if letter == "a" else relu(y)
            y = getattr(self, f"bn_{letter}")(getattr(self, f"conv_{letter}")(y))
        # The shape changes only together with the number of channels.
        return relu((self.shortcut(x) if self._added else x) + y)


class PaddingBlock(Block):
    """Its shortcut, where the shape changes, leaves pixels out and appends zero channels."""

    def shortcut(self, x: Tensor) -> Tensor:
        x = x[:, :, :: self._stride, :: self._stride]
        return functional.pad(x, (0, 0, 0, 0, 0, self._added))


class ProjectingBlock(Block):
    """Its shortcut, where the shape changes, is a 1 x 1 convolution and BatchNorm."""

    def __init__(self, in_channels: int, convolutions: Convolutions):
        super().__init__(in_channels, convolutions)
        if self._added:
            self.conv_shortcut = conv(in_channels, self.channels, 1, self._stride)
            self.bn_shortcut = nn.BatchNorm2d(self.channels)

    def shortcut(self, x: Tensor) -> Tensor:
        return self.bn_shortcut(self.conv_shortcut(x))


class GlobalPool(nn.Module):
    """Averages over all positions in float32: `[B, C, H, W]` -> `[B, C]`."""

    def __init__(self, channels: int):
        super().__init__()
        self.channels = channels

    def forward(self, x: Tensor) -> Tensor:
        return x.mean((2, 3), dtype=torch.float32)


def basic(channels: int, stride: int) -> Convolutions:
    """Two 3 x 3 convolutions."""
    return (channels, 3, stride), (channels, 3, 1)


def bottleneck(channels: int, stride: int) -> Convolutions:
    """A 3 x 3 convolution between two of 1 x 1, the last with four times the channels."""
    return (channels, 1, 1), (channels, 3, stride), (4 * channels, 1, 1)


def resnet(
    stem: Callable[[int], nn.Module],
    block: type[Block],
    kind: Callable[[int, int], Convolutions],
    stages: tuple[tuple[int, int], ...],
) -> Backbone:
    """stages: (channels, number of blocks) of each; all but the first halve the map."""
    units = [("stem", stem)]
    for stage, (channels, count) in enumerate(stages, start=1):
        for number in range(count):
            convolutions = kind(channels, 2 if stage > 1 and number == 0 else 1)
            make = functools.partial(block, convolutions=convolutions)
            units.append((f"stage{stage}_block{number}", make))
    return Backbone((*units, ("pool", GlobalPool)), feature_dim=convolutions[-1][0])


def cifar_resnet(depth: int) -> Backbone:
    """For small images: three stages, (depth - 2) / 6 blocks in each."""
    stages = tuple((channels, (depth - 2) // 6) for channels in (16, 32, 64))
    return resnet(functools.partial(Stage, channels=16), PaddingBlock, basic, stages)


def imagenet_resnet(kind: Callable[[int, int], Convolutions], *counts: int) -> Backbone:
    """For large images: four stages of so many blocks, after a stem that halves the map twice."""
    stem = functools.partial(Stage, channels=64, window=7, stride=2, pool=(3, 2, 1))
    return resnet(stem, ProjectingBlock, kind, tuple(zip((64, 128, 256, 512), counts)))


def convnet(*channels: int, **first: int) -> Backbone:
    """Stages of a convolution with bias and a max-pool; `first`: window and stride of the first."""
    make = functools.partial(Stage, bias=True, pool=(2, 2, 0))
    makes = [functools.partial(make, channels=own) for own in channels]
    makes[0] = functools.partial(makes[0], **first)
    units = tuple((f"stage{number}", make) for number, make in enumerate(makes, start=1))
    return Backbone((*units, ("pool", GlobalPool)), feature_dim=channels[-1])


BACKBONES = {
    **{f"resnet{depth}": cifar_resnet(depth) for depth in (8, 14, 20, 26, 32, 44, 56, 110)},
    "convnet2": convnet(64, 64),
    "convnet4": convnet(128, 128, 128, 512, window=7, stride=2),
    "resnet10": imagenet_resnet(basic, 1, 1, 1, 1),
    "resnet18": imagenet_resnet(basic, 2, 2, 2, 2),
    "resnet34": imagenet_resnet(basic, 3, 4, 6, 3),
    "resnet26_imagenet": imagenet_resnet(bottleneck, 2, 2, 2, 2),
    "resnet50": imagenet_resnet(bottleneck, 3, 4, 6, 3),
}
