"""Layers that compute what PyTorch's do, in Flax."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from memo_jax.backbones.convolution import convolve

EPSILON = 1e-5
STATISTICS_RATE = 0.1


class BatchNorm(nn.Module):
    """Batch normalisation with PyTorch's statistics (linen's running variance is biased).

    Training normalises by the biased variance of the batch and moves the running statistics by
    0.1 towards the batch, the running variance towards the unbiased one. Rows with mask 0 count
    nowhere, so a padded batch equals the unpadded one.
    """

    @nn.compact
    def __call__(self, x: jax.Array, train: bool, mask: jax.Array | None = None) -> jax.Array:
        """x `[B, H, W, C]`; mask float `[B]` of zeros and ones, or None for all ones."""
        channels = x.shape[-1]
        scale = self.param("scale", nn.initializers.ones, (channels,))
        bias = self.param("bias", nn.initializers.zeros, (channels,))
        mean = self.variable("batch_stats", "mean", jnp.zeros, (channels,))
        var = self.variable("batch_stats", "var", jnp.ones, (channels,))
        if not train:
            return _normalise(x, mean.value, var.value, scale, bias)
        batch_mean, batch_var, count = _moments(x, mask)
        if not self.is_initializing():
            unbiased = batch_var * (count / jnp.maximum(count - 1, 1))
            mean.value += STATISTICS_RATE * (batch_mean - mean.value)
            var.value += STATISTICS_RATE * (unbiased - var.value)
        return _normalise(x, batch_mean, batch_var, scale, bias)


def _moments(x: jax.Array, mask: jax.Array | None) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Mean and biased variance per channel in one pass over x, and the number of values."""
    pixels = x[0, ..., 0].size
    if mask is None:
        weighted, count = x, jnp.float32(len(x) * pixels)
    else:
        weighted = x * mask.reshape(-1, *[1] * (x.ndim - 1)).astype(x.dtype)
        count = mask.sum() * pixels
    axes = tuple(range(x.ndim - 1))
    mean = weighted.sum(axes, dtype=jnp.float32) / count
    mean_square = (weighted * x).sum(axes, dtype=jnp.float32) / count
    return mean, jnp.maximum(mean_square - mean**2, 0.0), count


def _normalise(x, mean, var, scale, bias):
    factor = scale * jax.lax.rsqrt(var + EPSILON)
    return x * factor.astype(x.dtype) + (bias - mean * factor).astype(x.dtype)


def conv(
    features: int, kernel: int, stride: int = 1, padding: int = 0, bias: bool = False, **options
) -> nn.Conv:
    """A convolution padded as PyTorch's (Flax's "SAME" differs at stride 2)."""
    return nn.Conv(
        features,
        (kernel, kernel),
        (stride, stride),
        padding=padding,
        use_bias=bias,
        conv_general_dilated=convolve,
        **options,
    )
