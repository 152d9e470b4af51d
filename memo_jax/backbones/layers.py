"""Layers that compute what PyTorch's do, in Flax."""

import functools
import itertools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from memo_jax import parallel
from memo_jax.backbones.convolution import convolve

STATISTICS_RATE = 0.1


def fan_out_normal(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Kernels from N(0, 2 / (h * w * out)), as He et al.; shape `[h, w, in, out]`."""
    height, width, _, out = shape
    return rng.standard_normal(shape) * (2.0 / (height * width * out)) ** 0.5


class BatchNorm(nn.Module):
    """Batch normalisation with PyTorch's statistics (linen's running variance is biased).

    Training normalises by the biased variance of the batch and moves the running statistics by
    0.1 towards the batch, the running variance towards the unbiased one. Rows with mask 0 count
    nowhere, so a padded batch equals the unpadded one.
    """

    epsilon: float = 1e-5

    @nn.compact
    def __call__(self, x: jax.Array, train: bool, mask: jax.Array | None = None) -> jax.Array:
        """x `[B, H, W, C]`; mask float `[B]` of zeros and ones, or None for all ones."""
        channels = x.shape[-1]
        scale = self.param("scale", nn.initializers.ones, (channels,))
        bias = self.param("bias", nn.initializers.zeros, (channels,))
        mean = self.variable("batch_stats", "mean", jnp.zeros, (channels,))
        var = self.variable("batch_stats", "var", jnp.ones, (channels,))
        if not train:
            return _normalise(x, mean.value, var.value, scale, bias, self.epsilon)
        batch_mean, batch_var, count = _moments(x, mask)
        if not self.is_initializing():
            unbiased = batch_var * (count / jnp.maximum(count - 1, 1))
            mean.value += STATISTICS_RATE * (batch_mean - mean.value)
            var.value += STATISTICS_RATE * (unbiased - var.value)
        return _normalise(x, batch_mean, batch_var, scale, bias, self.epsilon)


def _moments(x: jax.Array, mask: jax.Array | None) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Mean and biased variance per channel in one pass over x, and the number of values."""
    pixels = x[0, ..., 0].size
    if mask is None:
        weighted, count = x, jnp.float32(len(x) * pixels)
    else:
        weighted = x * mask.reshape(-1, *[1] * (x.ndim - 1)).astype(x.dtype)
        count = mask.sum() * pixels
    mean = _total(weighted) / count
    mean_square = _total(weighted * x) / count
    return mean, jnp.maximum(mean_square - mean**2, 0.0), count


def _total(x: jax.Array) -> jax.Array:
    """Sum per channel in float32; on CPU of every image first and then over the images.

    There one sum over all positions adds value to value: for `[128, 32, 32, C]` with a mean of 3
    deviations it makes variances wrong by 7e-5, this way by 2e-6, and is no faster. The barrier
    keeps XLA from joining the two sums.
    """
    if not parallel.adds_one_by_one():
        return x.sum(tuple(range(x.ndim - 1)), dtype=jnp.float32)
    of_images = x.sum(tuple(range(1, x.ndim - 1)), dtype=jnp.float32)
    return jax.lax.optimization_barrier(of_images).sum(axis=0)


def _normalise(x, mean, var, scale, bias, epsilon):
    factor = scale * jax.lax.rsqrt(var + epsilon)
    return x * factor.astype(x.dtype) + (bias - mean * factor).astype(x.dtype)


Sides = int | tuple[int, int]
"""Of height and width, or of both."""


def conv(
    features: int, kernel: Sides, stride: int = 1, padding: Sides = 0, bias: bool = False, **options
) -> nn.Conv:
    """A convolution padded as PyTorch's (Flax's "SAME" differs at stride 2)."""
    return nn.Conv(
        features,
        (kernel, kernel) if isinstance(kernel, int) else kernel,
        (stride, stride),
        padding=padding,
        use_bias=bias,
        conv_general_dilated=convolve,
        **options,
    )


def max_pool(x: jax.Array, window: int, stride: int, padding: int = 0) -> jax.Array:
    """The largest value of each window, x `[B, H, W, C]`; a last window that is cut is left out.

    Compares the image with shifted copies: the gradient of XLA's own pooling is several times
    slower on CPU. Among equals the first gets the gradient, as there and in PyTorch.
    """
    edge = (padding, padding)
    x = jnp.pad(x, ((0, 0), edge, edge, (0, 0)), constant_values=-jnp.inf)
    height, width = ((side - window) // stride + 1 for side in x.shape[1:3])
    shifted = (
        x[:, row : row + stride * height : stride, column : column + stride * width : stride]
        for row, column in itertools.product(range(window), repeat=2)
    )
    return functools.reduce(
        lambda largest, other: jnp.where(other > largest, other, largest), shifted
    )
