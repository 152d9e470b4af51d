"""The CIFAR ResNets, cut into trunk and blocks, with linear heads, in PyTorch.

Modules are named as memo_jax names its units and leaves, so that `weights` is one rule.
"""

import copy
from collections import OrderedDict
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

DEPTHS = (8, 14, 20, 26, 32, 44, 56, 110)
WIDTHS = (16, 32, 64)


class Outputs(NamedTuple):
    """features `[B, D]`, logits `[B, K]`, aux_logits `[B, new + 1]` or None."""

    features: Tensor
    logits: Tensor
    aux_logits: Tensor | None


def conv(in_channels: int, channels: int, stride: int = 1) -> nn.Conv2d:
    """A 3 x 3 convolution without bias that starts from N(0, 2 / (9 * channels))."""
    layer = nn.Conv2d(in_channels, channels, 3, stride, padding=1, bias=False)
    nn.init.normal_(layer.weight, std=(2 / (9 * channels)) ** 0.5)
    return layer


def linear(num_features: int, num_classes: int) -> nn.Linear:
    """A head: weights U(-b, b) with b = sqrt(3 / features), zero bias."""
    layer = nn.Linear(num_features, num_classes)
    bound = (3 / num_features) ** 0.5
    nn.init.uniform_(layer.weight, -bound, bound)
    nn.init.zeros_(layer.bias)
    return layer


class Stem(nn.Module):
    """3 x 3 convolution to 16 channels, BatchNorm, ReLU."""

    def __init__(self, in_channels: int):
        super().__init__()
        self.conv = conv(in_channels, WIDTHS[0])
        self.bn = nn.BatchNorm2d(WIDTHS[0])

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(self.bn(self.conv(x)), inplace=True)


class BasicBlock(nn.Module):
    """Two 3 x 3 convolutions; a shortcut that halves the image appends zero channels."""

    def __init__(self, in_channels: int, channels: int, stride: int):
        super().__init__()
        self.stride, self.appended = stride, channels - in_channels
        self.conv_a, self.bn_a = conv(in_channels, channels, stride), nn.BatchNorm2d(channels)
        self.conv_b, self.bn_b = conv(channels, channels), nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        y = functional.relu(self.bn_a(self.conv_a(x)), inplace=True)
        y = self.bn_b(self.conv_b(y))
        if self.stride > 1:
            x = x[:, :, :: self.stride, :: self.stride]
            x = functional.pad(x, (0, 0, 0, 0, 0, self.appended))
        return functional.relu(x + y, inplace=True)


class GlobalPool(nn.Module):
    """Averages over all positions in float32: `[B, C, H, W]` -> `[B, C]`."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mean((2, 3), dtype=torch.float32)


def units(depth: int, in_channels: int) -> list[tuple[str, nn.Module]]:
    """The named units of a ResNet of one of DEPTHS, in running order."""
    found, channels = [("stem", Stem(in_channels))], WIDTHS[0]
    for stage, width in enumerate(WIDTHS, start=1):
        for block in range((depth - 2) // 6):
            stride = 2 if stage > 1 and block == 0 else 1
            found.append((f"stage{stage}_block{block}", BasicBlock(channels, width, stride)))
            channels = width
    return [*found, ("pool", GlobalPool())]


class Network(nn.Module):
    """phi(x) = [s_1(g(x)), ..., s_b(g(x))] with trunk g and blocks s, and linear heads on it.

    cut: units in the trunk, 0 for DER. Images are normalised float `[B, C, H, W]`.
    """

    def __init__(self, depth: int, in_channels: int, cut: int, num_classes: int):
        super().__init__()
        self._shape = (depth, in_channels, cut)
        trunk, block = self._parts()
        self.trunk, self.blocks = trunk, nn.ModuleList([block])
        self.head = linear(WIDTHS[-1], num_classes)
        self.aux_head = None

    def _parts(self) -> tuple[nn.Sequential, nn.Sequential]:
        depth, in_channels, cut = self._shape
        named = units(depth, in_channels)
        return tuple(nn.Sequential(OrderedDict(part)) for part in (named[:cut], named[cut:]))

    def forward(self, images: Tensor) -> Outputs:
        shared = self.trunk(images)
        features = [block(shared) for block in self.blocks]
        joined = torch.cat(features, dim=1)
        # The heads compute in float32, whatever the convolutions do.
        with torch.autocast(images.device.type, enabled=False):
            aux = None if self.aux_head is None else self.aux_head(features[-1])
            return Outputs(joined, self.head(joined), aux)

    @torch.no_grad()
    def grow(self, num_new: int, adds_block: bool, block_init: str = "previous") -> None:
        """Widens the head by `num_new` classes; adds a block with a fresh auxiliary head.

        The block copies the previous one with its statistics, or is "fresh". Old weights of the
        head keep their place.
        """
        old, device = self.head, self.head.weight.device
        if adds_block:
            fresh = block_init == "fresh"
            self.blocks.append(self._parts()[1] if fresh else copy.deepcopy(self.blocks[-1]))
            self.aux_head = linear(WIDTHS[-1], num_new + 1)
        self.head = linear(WIDTHS[-1] * len(self.blocks), old.out_features + num_new)
        self.to(device)
        self.head.weight[: old.out_features, : old.in_features] = old.weight
        self.head.bias[: old.out_features] = old.bias

    def learn(self, trunk: bool = True, old_blocks: bool = True) -> None:
        """Sets what learns; what is frozen runs in inference mode and keeps its statistics."""
        self.train().requires_grad_(True)
        frozen = [] if trunk else [self.trunk]
        frozen += [] if old_blocks else self.blocks[:-1]
        for part in frozen:
            part.eval().requires_grad_(False)

    @torch.no_grad()
    def align(self, num_old: int) -> None:
        """Weight aligning: new classes' weights get the mean norm of the old classes'."""
        norms = self.head.weight.norm(dim=1)
        self.head.weight[num_old:] *= norms[:num_old].mean() / norms[num_old:].mean()
