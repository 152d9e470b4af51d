"""Image augmentation on the device: uint8 in, normalised float32 out."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from memo_jax.errors import expect_one_of

Augment = Callable[[jax.Array, jax.Array], jax.Array]
"""(key, uint8 images `[B, H, W, C]` at 0..255) -> float32 images at 0..1, same shape."""


def normalise(images: jax.Array, mean: tuple[float, ...], std: tuple[float, ...]) -> jax.Array:
    """`(images - mean) / std` per channel; images float `[B, H, W, C]` at 0..1."""
    return (images - jnp.asarray(mean)) / jnp.asarray(std)


def to_float(images: jax.Array) -> jax.Array:
    """uint8 0..255 -> float32 0..1."""
    return images.astype(jnp.float32) / 255.0


def random_crop(key: jax.Array, images: jax.Array, padding: int) -> jax.Array:
    """Pads with zeros by `padding` pixels and crops each image back at a random place."""
    batch, height, width, channels = images.shape
    p = padding
    padded = jnp.pad(images, ((0, 0), (p, p), (p, p), (0, 0)))
    corners = jax.random.randint(key, (batch, 2), 0, 2 * p + 1)

    def crop(image: jax.Array, corner: jax.Array) -> jax.Array:
        return jax.lax.dynamic_slice(image, (*corner, 0), (height, width, channels))

    return jax.vmap(crop)(padded, corners)


def random_flip(key: jax.Array, images: jax.Array) -> jax.Array:
    """Mirrors each image left-right with probability one half."""
    flips = jax.random.bernoulli(key, shape=(len(images), 1, 1, 1))
    return jnp.where(flips, images[:, :, ::-1], images)


def random_brightness(key: jax.Array, images: jax.Array, strength: float) -> jax.Array:
    """Scales each image by U(1 - strength, 1 + strength) and clips to 0..1."""
    factors = jax.random.uniform(
        key, (len(images), 1, 1, 1), minval=1 - strength, maxval=1 + strength
    )
    return jnp.clip(images * factors, 0.0, 1.0)


def none(key: jax.Array, images: jax.Array) -> jax.Array:
    """No augmentation."""
    return to_float(images)


def shift(key: jax.Array, images: jax.Array) -> jax.Array:
    """A random shift by at most one pixel, for small images whose mirror image is another class."""
    return to_float(random_crop(key, images, padding=1))


def cifar(key: jax.Array, images: jax.Array) -> jax.Array:
    """Pad 4 and crop, flip, brightness 63/255: what every method of the paper uses on CIFAR.

    The published code rounds to 8 bits after the brightness change; we keep the fraction.
    """
    crop_key, flip_key, brightness_key = jax.random.split(key, 3)
    images = random_flip(flip_key, random_crop(crop_key, images, padding=4))
    return random_brightness(brightness_key, to_float(images), 63 / 255)


AUGMENTATIONS: dict[str, Augment] = {"none": none, "shift": shift, "cifar": cifar}


def get(name: str) -> Augment:
    """An augmentation by its name in the config. Raises UserError for an unknown one."""
    expect_one_of("dataset.augment", name, sorted(AUGMENTATIONS))
    return AUGMENTATIONS[name]
