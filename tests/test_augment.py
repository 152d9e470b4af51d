"""Augmentation against every result it may give, and the address that its randomness has."""

import functools
import zlib

import jax
import numpy as np
import pytest

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


AUGMENTATIONS = {
    "crop": functools.partial(augment.random_crop, padding=PADDING),
    "flip": augment.random_flip,
    "brightness": lambda key, x: augment.random_brightness(key, augment.to_float(x), 0.25),
    "shift": augment.shift,
    "cifar": augment.cifar,
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
