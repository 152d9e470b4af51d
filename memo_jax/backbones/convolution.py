"""Convolution as XLA's, with a weight gradient that is one matrix product on a CPU.

XLA computes the gradient for the weights as one convolution whose window is the whole image, with
the batch as its channels: on CPU up to five times slower than the forward pass. The same sums are
a product of two matrices over all positions, one of pixels and one of gradients:

    dW[i, j] = sum over b, h, w of x[b, h + i, w + j]^T g[b, h, w]     (stride 1, no padding)
             = sum over b, h, w of x[b, h, w + j]^T g[b, h - i, w]

so the pixels are laid side by side for every column j of the kernel and the gradients for every
row i, which is less to write than every pixel for every (i, j).

Where the image is smaller than the window, as late in a network for large images that is given
small ones, XLA's convolution itself is up to seventy times slower than a product.
"""

import jax
import jax.numpy as jnp
from jax import lax

from memo_jax import parallel

LAYOUT = ("NHWC", "HWIO", "NHWC")


def convolve(x: jax.Array, kernel: jax.Array, strides, padding, **options) -> jax.Array:
    """`lax.conv_general_dilated` for x `[B, H, W, C]` and kernel `[h, w, C, out]`.

    Made to be the `conv_general_dilated` of a flax Conv; `options` are its other arguments, which
    only the plain convolution understands.
    """
    plain = {name: value for name, value in options.items() if value not in (None, 1, (1, 1))}
    plain.pop("dimension_numbers", None)
    if plain or not parallel.prefers_weight_gradients_as_products():
        return lax.conv_general_dilated(x, kernel, strides, padding, **options)
    return _convolve(x, kernel, tuple(strides), tuple(map(tuple, padding)))


def _forward(x, kernel, strides, padding):
    sides = list(zip(x.shape[1:3], kernel.shape[:2], padding))
    is_small = any(size < window for size, window, _ in sides)
    # Otherwise nothing comes out, as only shapes can tell (backbones/base.py).
    fits = all(size > 0 and window <= size + sum(edges) for size, window, edges in sides)
    if is_small and fits:
        return _as_product(x, kernel, strides, padding)
    return lax.conv_general_dilated(x, kernel, strides, padding, dimension_numbers=LAYOUT)


_convolve = jax.custom_vjp(_forward, nondiff_argnums=(2, 3))


def _keep(x, kernel, strides, padding):
    return _forward(x, kernel, strides, padding), (x, kernel)


def _backward(strides, padding, kept, gradient):
    x, kernel = kept
    backward_x = jax.vjp(lambda x: _forward(x, kernel, strides, padding), x)[1]
    return backward_x(gradient)[0], _weight_gradient(x, gradient, kernel.shape, strides, padding)


_convolve.defvjp(_keep, _backward)


def _weight_gradient(x, gradient, kernel_shape, strides, padding):
    """`[h, w, C, out]` from x `[B, H, W, C]` and the gradient `[B, H', W', out]`."""
    height, width, channels, out = kernel_shape
    (top, _), (left, _) = padding
    if width * channels + height * out > height * width * channels + out:  # as in a stem
        windows = _windows(x, (height, width), strides, padding, gradient.shape[1:3])
        total = _product(gradient, windows)
        return total.reshape(out, height, width, channels).transpose(1, 2, 3, 0)
    x = _side_by_side(x, 2, range(-left, width - left), strides[1], gradient.shape[2])
    between = lax.pad(gradient, _zero(gradient), [(0, 0, i) for i in (0, strides[0] - 1, 0, 0)])
    gradient = _side_by_side(between, 1, range(top, top - height, -1), 1, x.shape[1])
    total = _product(gradient, x)
    return total.reshape(height, out, width, channels).transpose(0, 2, 3, 1)


def _as_product(x, kernel, strides, padding):
    """The convolution as a product of all pixels of each window with the kernel."""
    height, width, channels, out = kernel.shape
    (top, bottom), (left, right) = padding
    rows = (x.shape[1] + top + bottom - height) // strides[0] + 1
    columns = (x.shape[2] + left + right - width) // strides[1] + 1
    windows = _windows(x, (height, width), strides, padding, (rows, columns))
    windows = windows.reshape(-1, height * width * channels)
    return (windows @ kernel.reshape(-1, out)).reshape(len(x), rows, columns, out)


def _windows(x, window, strides, padding, size):
    """All pixels of every window, row by row: `[B, *size, h * w * C]`."""
    (height, width), ((top, _), (left, _)) = window, padding
    x = _side_by_side(x, 2, range(-left, width - left), strides[1], size[1])
    return _side_by_side(x, 1, range(-top, height - top), strides[0], size[0])


def _product(a: jax.Array, b: jax.Array) -> jax.Array:
    """Sum over all positions of a^T b: `[..., N]`, `[..., M]` -> `[N, M]`."""
    return a.reshape(-1, a.shape[-1]).T @ b.reshape(-1, b.shape[-1])


def _side_by_side(x: jax.Array, axis: int, shifts: range, stride: int, size: int) -> jax.Array:
    """`[..., C]` -> `[..., len(shifts) * C]`: at i of `axis` x at i * stride + each of `shifts`.

    Zero beyond the edges; `axis` gets `size` places. A sum of arrays each with zeros around its
    own channels, which XLA writes in one go: five times faster on CPU than joining them.
    """
    channels, parts = x.shape[-1], []
    for number, shift in enumerate(shifts):
        edges = [(0, 0, 0)] * x.ndim
        edges[axis] = (-shift, shift + (size - 1) * stride + 1 - x.shape[axis], 0)
        edges[-1] = (number * channels, (len(shifts) - 1 - number) * channels, 0)
        parts.append(lax.slice_in_dim(lax.pad(x, _zero(x), edges), 0, None, stride, axis))
    return sum(parts[1:], parts[0])


def _zero(x: jax.Array) -> jax.Array:
    return jnp.zeros((), x.dtype)
