"""What a backbone is: a list of named units, run in turn, that may be cut between any two.

The units before the cut are the trunk (generalized block), the others the block (specialized).
Parameters and statistics are plain trees `{unit: {...}}`, so the trunk and a block of one
network are two parts of the same dictionary and the same seed gives them the same weights.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from memo_jax.randomness import generator_for

Tree = dict
Units = tuple[tuple[str, nn.Module], ...]
"""(name, module called as `module(x, train, mask)`), in running order."""
KernelInit = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]


@dataclasses.dataclass(frozen=True)
class Backbone:
    """A network without its head: images `[B, H, W, C]` -> features `[B, feature_dim]`.

    cuts: name of a cut -> number of units in the trunk.
    kernel_init: how convolution and linear kernels start; scales start at 1, biases at 0.
    min_size: the smallest image side it can be given, in pixels.
    """

    name: str
    units: Units
    cuts: Mapping[str, int]
    feature_dim: int
    kernel_init: KernelInit
    min_size: int = 1


@functools.cache
def _shapes(module: nn.Module, in_shape: tuple[int, ...]) -> tuple[tuple[int, ...], Tree]:
    """What a unit makes of one example of `in_shape`, and the shapes of its variables.

    Tracing a unit takes some 30 ms and is asked for again and again.
    """
    x = jax.ShapeDtypeStruct((1, *in_shape), jnp.float32)
    out, variables = jax.eval_shape(
        lambda x: module.init_with_output(jax.random.key(0), x, False), x
    )
    return out.shape[1:], variables


def output_shape(units: Units, in_shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that `units` make of one example of `in_shape`, without the batch axis."""
    for _, module in units:
        in_shape, _ = _shapes(module, in_shape)
    return in_shape


def num_parameters(units: Units, in_shape: tuple[int, ...]) -> int:
    """Number of parameters of `units` for examples of `in_shape`, without making them."""
    total = 0
    for _, module in units:
        in_shape, variables = _shapes(module, in_shape)
        total += sum(math.prod(s.shape) for s in jax.tree.leaves(variables.get("params", {})))
    return total


def init(
    units: Units, in_shape: tuple[int, ...], kernel_init: KernelInit, seed: int, *address: int | str
) -> tuple[Tree, Tree]:
    """Fresh (parameters, statistics) of `units` for examples of `in_shape`, as NumPy arrays.

    Only shapes are taken from Flax, whose own `init` runs the network and is slow on CPU. The
    draws depend on seed, address, unit name and leaf, not on where the backbone is cut.
    """
    params, stats = {}, {}
    for name, module in units:
        in_shape, shapes = _shapes(module, in_shape)
        fill = functools.partial(_fill, kernel_init, (seed, *address, name))
        params[name] = jax.tree_util.tree_map_with_path(fill, shapes.get("params", {}))
        stats[name] = jax.tree_util.tree_map_with_path(fill, shapes.get("batch_stats", {}))
    return params, stats


def _fill(kernel_init: KernelInit, address: tuple, path: tuple, leaf) -> np.ndarray:
    kind = path[-1].key
    if kind == "kernel":
        rng = generator_for(*address, jax.tree_util.keystr(path))
        return kernel_init(rng, leaf.shape).astype(np.float32)
    value = {"scale": 1.0, "var": 1.0, "bias": 0.0, "mean": 0.0}[kind]
    return np.full(leaf.shape, value, np.float32)


def run(
    units: Units,
    params: Tree,
    stats: Tree,
    x: jax.Array,
    training: Mapping[str, bool],
    mask: jax.Array | None,
) -> tuple[jax.Array, Tree]:
    """Runs `units` on x `[B, ...]`; returns the output and the statistics after it.

    training: by unit, whether its BatchNorm uses and moves batch statistics; a unit that is not
    named is in inference mode and keeps its statistics.
    """
    after = {}
    for name, module in units:
        variables = {"params": params[name], "batch_stats": stats[name]}
        if training.get(name, False):
            x, moved = module.apply(variables, x, True, mask, mutable=["batch_stats"])
            after[name] = moved.get("batch_stats", {})
        else:
            x = module.apply(variables, x, False, mask)
            after[name] = stats[name]
    return x, after


class GlobalPool(nn.Module):
    """Averages over all positions in float32: `[B, H, W, C]` -> `[B, C]`."""

    @nn.compact
    def __call__(self, x: jax.Array, train: bool, mask: jax.Array | None = None) -> jax.Array:
        return x.mean(axis=(1, 2), dtype=jnp.float32)
