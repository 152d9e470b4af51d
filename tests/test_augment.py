"""Augmentation against every result it may give, and the address that its randomness has."""

import functools
import zlib

import jax
import numpy as np
import pytest
from PIL import Image

from memo_jax import augment, randomness
from memo_jax.errors import UserError

SIZE = 6
PADDING = 2
KEY = jax.random.key(0)


def distinct_images(count: int, seed: int = 0) -> np.ndarray:
    """uint8 `[count, 6, 6, 3]`; no value is 0, so that padding shows."""
    return np.random.RandomState(seed).randint(1, 256, (count, SIZE, SIZE, 3)).astype(np.uint8)


def shifts(image: np.ndarray, p: int) -> dict[tuple[int, int], np.ndarray]:
    """All (2p + 1)**2 images that lie `dy, dx` further down and right, zeros moving in."""
    results = {}
    for dy in range(-p, p + 1):
        for dx in range(-p, p + 1):
            moved = np.roll(image, (dy, dx), axis=(0, 1))
            moved[slice(0, dy) if dy >= 0 else slice(dy, None)] = 0
            moved[:, slice(0, dx) if dx >= 0 else slice(dx, None)] = 0
            results[dy, dx] = moved
    return results


def shift_of(before: np.ndarray, after: np.ndarray, p: int) -> tuple[int, int]:
    found = [s for s, moved in shifts(before, p).items() if np.array_equal(moved, after)]
    assert len(found) == 1, "not a shift of the zero-padded image"
    return found[0]


def factor_between(before: np.ndarray, after: np.ndarray) -> float | None:
    """The factor that makes `before` `after` when clipped at 1, or None."""
    unclipped = (before > 0) & (after < 1)
    if not unclipped.any() or not np.array_equal(before > 0, after > 0):
        return None
    factor = float(np.median(after[unclipped] / before[unclipped]))
    return factor if np.allclose(after, np.minimum(before * factor, 1), atol=1e-5) else None


def test_random_crop_is_one_of_all_shifts_and_each_of_them_occurs():
    images = distinct_images(400)
    cropped = np.asarray(augment.random_crop(KEY, images, PADDING))
    assert (cropped.shape, cropped.dtype) == (images.shape, np.uint8)
    met = [shift_of(a, b, PADDING) for a, b in zip(images, cropped)]
    assert set(met) == {(y, x) for y in range(-2, 3) for x in range(-2, 3)}


def test_shift_moves_by_at_most_one_pixel():
    images = distinct_images(100)
    shifted = np.asarray(augment.shift(KEY, images))
    assert shifted.dtype == np.float32
    restored = np.rint(shifted * 255).astype(np.uint8)
    met = {shift_of(a, b, 1) for a, b in zip(images, restored)}
    assert met == {(y, x) for y in (-1, 0, 1) for x in (-1, 0, 1)}


def test_random_flip_is_the_image_or_its_mirror_image_about_equally_often():
    images = distinct_images(200)
    flipped = np.asarray(augment.random_flip(KEY, images))
    mirrored = 0
    for before, after in zip(images, flipped):
        same = np.array_equal(after, before)
        mirror = all(np.array_equal(after[:, x], before[:, SIZE - 1 - x]) for x in range(SIZE))
        assert same != mirror
        mirrored += mirror
    assert 70 <= mirrored <= 130  # 100 expected, standard deviation 7


def test_random_brightness_scales_each_image_by_its_own_factor_and_clips():
    strength = 0.25
    images = distinct_images(300).astype(np.float32) / 255
    changed = np.asarray(augment.random_brightness(KEY, images, strength))
    factors = [factor_between(before, after) for before, after in zip(images, changed)]
    assert None not in factors
    assert changed.max() == 1.0
    assert min(factors) >= 1 - strength - 1e-5 and max(factors) <= 1 + strength + 1e-5
    counts, _ = np.histogram(factors, bins=5, range=(1 - strength, 1 + strength))
    assert counts.min() >= 35  # 60 expected in each fifth, standard deviation 7


def test_cifar_crops_with_padding_4_flips_and_changes_the_brightness_by_at_most_63_of_255():
    images = distinct_images(60)
    results = np.asarray(augment.cifar(KEY, images))
    assert (results.dtype, results.shape) == (np.float32, images.shape)
    assert results.min() >= 0 and results.max() <= 1
    met = []
    for before, after in zip(images, results):
        candidates = {
            (mirrored, shift): factor_between(moved / 255, after)
            for mirrored in (False, True)
            for shift, moved in shifts(before[:, ::-1] if mirrored else before, 4).items()
        }
        explained = [(*how, factor) for how, factor in candidates.items() if factor is not None]
        assert len(explained) == 1
        met += explained
    mirrored, places, factors = zip(*met)
    assert {*mirrored} == {False, True}
    assert len({*places}) > 20 and max(max(map(abs, place)) for place in places) == 4
    assert 192 / 255 - 1e-4 <= min(factors) < 0.8 and 1.2 < max(factors) <= 318 / 255 + 1e-4


def test_crops_are_resized_as_by_pillow():
    size, draws = 24, np.random.RandomState(0)
    images = draws.randint(0, 256, (60, size, size, 3)).astype(np.uint8)
    extents = draws.randint(1, size + 1, (60, 2))
    boxes = np.concatenate([draws.randint(0, size - extents + 1), extents], axis=1)
    boxes[0] = 0, 0, size, size
    found = np.asarray(augment.resized_crops(augment.to_float(images), boxes))
    np.testing.assert_allclose(found[0], images[0] / 255, atol=1e-6)
    for image, (top, left, height, width), after in zip(images, boxes.tolist(), found):
        part = Image.fromarray(image).crop((left, top, left + width, top + height))
        expected = np.asarray(part.resize((size, size), Image.BILINEAR)) / 255
        assert np.abs(after - expected).max() <= 1.01 / 255  # Pillow rounds twice


def reference_boxes(count: int, height: int, width: int) -> np.ndarray:
    """Boxes by the definition of torchvision's RandomResizedCrop, one at a time."""
    draws, boxes = np.random.default_rng(0), []
    for _ in range(count):
        for _ in range(10):
            area = height * width * draws.uniform(0.08, 1)
            ratio = np.exp(draws.uniform(np.log(3 / 4), np.log(4 / 3)))
            w, h = round(np.sqrt(area * ratio)), round(np.sqrt(area / ratio))
            if 0 < w <= width and 0 < h <= height:
                boxes.append((draws.integers(height - h + 1), draws.integers(width - w + 1), h, w))
                break
    return np.array(boxes)


@pytest.mark.parametrize("shape", [(64, 64), (30, 40)])
def test_boxes_are_distributed_as_those_of_torchvision(shape):
    found = np.asarray(augment.crop_boxes(KEY, 20_000, *shape), np.int64)
    top, left, height, width = found.T
    assert min(top.min(), left.min(), height.min() - 1, width.min() - 1) >= 0
    assert (top + height).max() == shape[0] and (left + width).max() == shape[1]
    whole = reference_boxes(20_000, *shape)
    for of in (
        lambda b: b[:, 2] * b[:, 3],
        lambda b: b[:, 3] / b[:, 2],
        lambda b: b[:, 0],
        lambda b: b[:, 1],
        lambda b: 2 * b[:, 0] + b[:, 2],
    ):
        mine, theirs = np.sort(of(found)), np.sort(of(whole))
        at = np.unique(theirs)
        both = [np.searchsorted(values, at, "right") / len(values) for values in (mine, theirs)]
        assert np.abs(both[0] - both[1]).max() < 0.02  # Kolmogorov and Smirnov's, at 1 in 1000


@pytest.mark.parametrize(
    ("shape", "box"), [((3, 1000), (0, 498, 3, 4)), ((1000, 3), (498, 0, 4, 3))]
)
def test_where_no_box_fits_it_is_the_largest_in_the_middle(shape, box):
    assert np.unique(augment.crop_boxes(KEY, 50, *shape), axis=0).tolist() == [list(box)]


def test_imagenet_crops_enlarges_and_flips_each_image_in_its_own_way():
    ramp = np.broadcast_to(np.arange(0, 256, 4, dtype=np.uint8)[:, None], (64, 64, 3))
    images = np.stack([ramp] * 100)  # brighter from left to right
    images[0] = 0
    images[0, :, :, 1] = np.arange(0, 256, 4)[:, None]  # from above to below
    plain = np.asarray(augment.imagenet(KEY, images))
    assert (plain.shape, plain.dtype) == (images.shape, np.float32)
    assert plain.min() >= 0 and plain.max() <= 252 / 255 + 1e-6
    assert (plain[0, -1, :, 1] > plain[0, 0, :, 1]).all() and not plain[0, :, :, 0].any()
    steps = np.sign(plain[1:, 0, -1, 0] - plain[1:, 0, 0, 0])
    assert set(steps.tolist()) == {-1, 1} and 30 < (steps == 1).sum() < 70
    ranges = plain[1:].max(axis=(1, 2, 3)) - plain[1:].min(axis=(1, 2, 3))
    assert len(np.unique(ranges)) > 20 and ranges.min() < 0.5 and ranges.max() > 0.9


def test_imagenet_brightness_is_changed_by_at_most_63_of_255():
    images = np.full((200, 8, 8, 3), 100, np.uint8)
    assert np.allclose(augment.imagenet(KEY, images), 100 / 255)
    factors = np.asarray(augment.imagenet_brightness(KEY, images)) * 2.55
    assert np.ptp(factors, axis=(1, 2, 3)).max() < 1e-5
    assert 192 / 255 - 1e-4 <= factors.min() < 0.8 and 1.2 < factors.max() <= 318 / 255 + 1e-4


AUGMENTATIONS = {
    "crop": functools.partial(augment.random_crop, padding=PADDING),
    "flip": augment.random_flip,
    "brightness": lambda key, x: augment.random_brightness(key, augment.to_float(x), 0.25),
    "shift": augment.shift,
    "cifar": augment.cifar,
    "imagenet": augment.imagenet,
    "imagenet_brightness": augment.imagenet_brightness,
}


@pytest.mark.parametrize("function", AUGMENTATIONS.values(), ids=AUGMENTATIONS)
def test_the_key_decides_the_result(function):
    images = jax.numpy.asarray(distinct_images(30))
    first, again, other = (function(jax.random.key(seed), images) for seed in (3, 3, 4))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_none_only_scales_to_0_and_1():
    images = np.arange(256, dtype=np.uint8).reshape(1, 16, 16, 1)
    result = np.asarray(augment.none(KEY, images))
    assert result.dtype == np.float32
    np.testing.assert_allclose(result.ravel(), np.arange(256) / 255, rtol=1e-6)


def test_normalise_works_per_channel():
    images = np.random.RandomState(0).rand(2, 3, 3, 3).astype(np.float32)
    mean, std = (0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)
    result = np.asarray(augment.normalise(images, mean, std))
    for c in range(3):
        expected = (images[..., c].astype(np.float64) - mean[c]) / std[c]
        np.testing.assert_allclose(result[..., c], expected, atol=1e-6)


def test_an_unknown_augmentation_is_told_with_the_near_name():
    with pytest.raises(UserError, match=r"dataset.augment: there is no 'cifr'; .*'cifar'\?"):
        augment.get("cifr")


AUGMENT = 0xEB167A19
ADDRESS = (1, 2, "augment", 3)
OTHERS = [
    (0, 2, "augment", 3),
    (1, 3, "augment", 3),
    (1, 2, "shuffle", 3),
    (1, 2, "augment", 4),
    (1, 2, "augment"),
    (1, "augment", 2, 3),
    (1, 2, 3, "augment"),
]


def key_numbers(*address) -> list[int]:
    return jax.random.key_data(randomness.key_for(*address)).tolist()


def host_numbers(*address) -> list[int]:
    return randomness.generator_for(*address).permutation(50).tolist()


@pytest.mark.parametrize("draw", [key_numbers, host_numbers])
def test_an_address_has_its_own_numbers_however_often_it_is_asked(draw):
    first = draw(*ADDRESS)
    others = [draw(*address) for address in OTHERS]
    assert draw(*ADDRESS) == first
    assert first not in others
    assert len({tuple(numbers) for numbers in others}) == len(others)


def test_the_numbers_of_an_address_are_the_same_in_every_process():
    """Python's own hash of a text is not; a text stands for its CRC-32."""
    assert zlib.crc32(b"augment") == AUGMENT
    expected = jax.random.fold_in(jax.random.fold_in(jax.random.key(1), AUGMENT), 3)
    assert key_numbers(1, "augment", 3) == jax.random.key_data(expected).tolist()
    expected = np.random.default_rng([1, AUGMENT, 3]).permutation(50)
    assert host_numbers(1, "augment", 3) == expected.tolist()


@pytest.mark.parametrize("seed", [0, 1993, -1, 2**31])
def test_any_whole_number_may_be_the_seed_on_the_host(seed):
    assert sorted(host_numbers(seed, 0, "order")) == list(range(50))
