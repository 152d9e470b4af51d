"""Image augmentation on the device: uint8 in, normalised float32 out."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from memo_jax import crops
from memo_jax.errors import expect_one_of

Augment = Callable[..., jax.Array]
"""(key, uint8 images `[B, H, W, C]` at 0..255) -> float32 images at 0..1, same shape.

Those of CROPPING take a third argument, bool `[B]`: which images are cropped already.
"""


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


def crop_boxes(key: jax.Array, batch: int, height: int, width: int) -> jax.Array:
    """Random boxes int32 `[batch, 4]` of images `height x width`: top, left, height, width.

    Drawn as by crops.random_box.
    """
    area_key, ratio_key, place_key = jax.random.split(key, 3)
    shape = (batch, crops.ATTEMPTS)
    low, high = crops.AREAS
    areas = height * width * jax.random.uniform(area_key, shape, minval=low, maxval=high)
    low, high = crops.LOG_RATIOS
    ratios = jnp.exp(jax.random.uniform(ratio_key, shape, minval=low, maxval=high))
    heights = jnp.round(jnp.sqrt(areas / ratios)).astype(jnp.int32)
    widths = jnp.round(jnp.sqrt(areas * ratios)).astype(jnp.int32)
    fits = (heights > 0) & (heights <= height) & (widths > 0) & (widths <= width)
    first, some = jnp.argmax(fits, axis=1)[:, None], fits.any(axis=1)

    def chosen(sides: jax.Array, otherwise: int) -> jax.Array:
        return jnp.where(some, jnp.take_along_axis(sides, first, axis=1)[:, 0], otherwise)

    largest_width, largest_height = crops.largest_box(width, height)
    box_height, box_width = chosen(heights, largest_height), chosen(widths, largest_width)
    spare = jnp.stack([height - box_height, width - box_width], axis=1)
    corners = jax.random.randint(place_key, (batch, 2), 0, spare + 1)
    corners = jnp.where(some[:, None], corners, spare // 2)
    return jnp.concatenate([corners, box_height[:, None], box_width[:, None]], axis=1)


def resized_crops(images: jax.Array, boxes: jax.Array) -> jax.Array:
    """What is inside the box of each image, bilinearly enlarged to the size of the whole image.

    images: float `[B, H, W, C]`; boxes: `[B, 4]` as of `crop_boxes`. The pixels at the rim of a
    box are continued outwards; what lies beyond is not looked at. As Pillow does, which however
    rounds to 8 bits.
    """
    height, width = images.shape[1:3]

    def resized(rows: jax.Array, first: jax.Array, extent: jax.Array, size: int) -> jax.Array:
        """Axis 0: `extent` rows from the `first` on become `size` rows."""
        places = (jnp.arange(size) + 0.5) * extent / size - 0.5
        places = first + jnp.clip(places, 0, extent - 1)
        below = jnp.floor(places).astype(jnp.int32)
        above = jnp.minimum(below + 1, first + extent - 1)
        part = (places - below)[:, None, None]
        return rows[below] * (1 - part) + rows[above] * part

    def crop(image: jax.Array, box: jax.Array) -> jax.Array:
        top, left, box_height, box_width = box
        image = resized(image, top, box_height, height)
        # Whole rows are gathered, which is three times as fast on a CPU as single pixels.
        return resized(image.swapaxes(0, 1), left, box_width, width).swapaxes(0, 1)

    return jax.vmap(crop)(images, boxes)


def imagenet(key: jax.Array, images: jax.Array, cropped: jax.Array | None = None) -> jax.Array:
    """Random resized crop and flip: what every method of the paper uses on ImageNet-100.

    cropped: bool `[B]`, the images that a reader of files has cropped from the whole image, as the
    published code does; of all others only the centre is stored, from which they are cropped.
    """
    crop_key, flip_key = jax.random.split(key)
    batch, height, width, _ = images.shape
    boxes = crop_boxes(crop_key, batch, height, width)
    if cropped is not None:  # the box of the whole image changes nothing
        boxes = jnp.where(cropped[:, None], jnp.array([0, 0, height, width]), boxes)
    return random_flip(flip_key, resized_crops(to_float(images), boxes))


def imagenet_brightness(
    key: jax.Array, images: jax.Array, cropped: jax.Array | None = None
) -> jax.Array:
    """As `imagenet`, and brightness 63/255: what the paper uses on ImageNet-1000."""
    key, brightness_key = jax.random.split(key)
    return random_brightness(brightness_key, imagenet(key, images, cropped), 63 / 255)


AUGMENTATIONS: dict[str, Augment] = {
    "none": none,
    "shift": shift,
    "cifar": cifar,
    "imagenet": imagenet,
    "imagenet_brightness": imagenet_brightness,
}
CROPPING = ("imagenet", "imagenet_brightness")
"""Those that begin with a random resized crop."""


def get(name: str) -> Augment:
    """An augmentation by its name in the config. Raises UserError for an unknown one."""
    expect_one_of("dataset.augment", name, sorted(AUGMENTATIONS))
    return AUGMENTATIONS[name]
