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
        mask = jnp.ones(len(x)) if mask is None else mask
        out, batch_mean, batch_var = _batch_normalise(x, mask, scale, bias, self.epsilon)
        if not self.is_initializing():
            count = _count(x, mask)
            unbiased = batch_var * (count / jnp.maximum(count - 1, 1))
            mean.value += STATISTICS_RATE * (batch_mean - mean.value)
            var.value += STATISTICS_RATE * (unbiased - var.value)
        return out


def _normalise(x, mean, var, scale, bias, epsilon):
    factor = scale * jax.lax.rsqrt(var + epsilon)
    return x * factor.astype(x.dtype) + (bias - mean * factor).astype(x.dtype)


@functools.partial(jax.custom_vjp, nondiff_argnums=(4,))
def _batch_normalise(x, mask, scale, bias, epsilon):
    """x `[B, H, W, C]` by its own statistics; returns it, mean and biased variance `[C]`."""
    mean, mean_square = _mean(x, mask), _mean(x, mask, x)
    var = jnp.maximum(mean_square - mean**2, 0.0)
    return _normalise(x, mean, var, scale, bias, epsilon), mean, var


def _keep(x, mask, scale, bias, epsilon):
    out, mean, var = _batch_normalise(x, mask, scale, bias, epsilon)
    return (out, mean, var), (x, mask, scale, mean, var)


def _backward(epsilon, kept, gradients):
    """In two passes: the two sums over the gradient, then the gradient for x."""
    x, mask, scale, mean, var = kept
    grad, grad_mean, grad_var = gradients
    count, inverse = _count(x, mask), jax.lax.rsqrt(var + epsilon)
    grad_bias, product = _total(grad, mask), _total(grad, mask, x)
    grad_scale = (product - mean * grad_bias) * inverse
    grad_var -= 0.5 * scale * grad_scale * inverse**2
    grad_mean -= scale * inverse * grad_bias + 2.0 * mean * grad_var
    rows = mask.reshape(-1, *[1] * (x.ndim - 1)).astype(x.dtype)
    slope, offset = (2.0 * grad_var / count).astype(x.dtype), (grad_mean / count).astype(x.dtype)
    grad_x = grad * (scale * inverse).astype(x.dtype) + rows * (slope * x + offset)
    return grad_x, jnp.zeros_like(mask), grad_scale, grad_bias


_batch_normalise.defvjp(_keep, _backward)


def _count(x: jax.Array, mask: jax.Array) -> jax.Array:
    """Number of values per channel that count."""
    return mask.sum() * x[0, ..., 0].size


def _mean(x: jax.Array, mask: jax.Array, times: jax.Array | float = 1.0) -> jax.Array:
    return _total(x, mask, times) / _count(x, mask)


def _total(x: jax.Array, mask: jax.Array, times: jax.Array | float = 1.0) -> jax.Array:
    """Sum of x * times per channel in float32 over the images with mask 1; on CPU image by image.

    There one sum over all positions adds value to value: for `[128, 32, 32, C]` with a mean of 3
    deviations it makes variances wrong by 7e-5, this way by 2e-6, and the mask costs no pass. The
    barrier keeps XLA from joining the two sums where the mask is all ones.
    """
    x = x.astype(jnp.float32) * times
    if parallel.adds_one_by_one():
        of_images = jax.lax.optimization_barrier(x.sum(tuple(range(1, x.ndim - 1))))
        return (of_images * mask[:, None]).sum(axis=0)
    return (x * mask.reshape(-1, *[1] * (x.ndim - 1))).sum(tuple(range(x.ndim - 1)))


def relu(x: jax.Array) -> jax.Array:
    """max(x, 0), its gradient 0 at 0.

    As a choice between two arrays, which XLA computes once; a maximum with a constant it computes
    again wherever it is used, on CPU with the whole chain of residual blocks before it.
    """
    return jnp.where(x > 0, x, 0)


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
