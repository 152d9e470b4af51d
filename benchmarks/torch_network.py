"""A backbone cut into trunk and blocks, with linear heads, in PyTorch."""

import copy
from collections import OrderedDict
from typing import NamedTuple

import torch
from torch import Tensor, nn

from benchmarks.torch_backbones import Backbone


class Outputs(NamedTuple):
    """features `[B, D]`, logits `[B, K]`, aux_logits `[B, new + 1]` or None."""

    features: Tensor
    logits: Tensor
    aux_logits: Tensor | None


def linear(num_features: int, num_classes: int) -> nn.Linear:
    """A head: weights U(-b, b) with b = sqrt(3 / features), zero bias."""
    layer = nn.Linear(num_features, num_classes)
    bound = (3 / num_features) ** 0.5
    nn.init.uniform_(layer.weight, -bound, bound)
    nn.init.zeros_(layer.bias)
    return layer


class Network(nn.Module):
    """phi(x) = [s_1(g(x)), ..., s_b(g(x))] with trunk g and blocks s, and linear heads on it.

    cut: units in the trunk, 0 for DER. Images are normalised float `[B, C, H, W]`.
    """

    def __init__(self, backbone: Backbone, in_channels: int, cut: int, num_classes: int):
        super().__init__()
        self._backbone, self._in_channels, self._cut = backbone, in_channels, cut
        trunk, block = self._parts()
        self.trunk, self.blocks = trunk, nn.ModuleList([block])
        self.head = linear(backbone.feature_dim, num_classes)
        self.aux_head = None

    def _parts(self) -> tuple[nn.Sequential, nn.Sequential]:
        units = self._backbone.build(self._in_channels)
        parts = units[: self._cut], units[self._cut :]
        return tuple(nn.Sequential(OrderedDict(part)) for part in parts)

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
        old, device, width = self.head, self.head.weight.device, self._backbone.feature_dim
        if adds_block:
            fresh = block_init == "fresh"
            self.blocks.append(self._parts()[1] if fresh else copy.deepcopy(self.blocks[-1]))
            self.aux_head = linear(width, num_new + 1)
        self.head = linear(width * len(self.blocks), old.out_features + num_new)
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
