"""Images of every kind become RGB, upright, of one size; the size against a second way."""

import numpy as np
import pytest
from PIL import Image

from memo_jax.datasets import _decode

RED, BLUE = (255, 0, 0), (0, 0, 255)


def halves(mode: str, left, right, width: int = 64, height: int = 32) -> Image.Image:
    image = Image.new(mode, (width, height), left)
    image.paste(right, (width // 2, 0, width, height))
    return image


def palette(**options) -> Image.Image:
    return halves("RGB", RED, BLUE).convert("P", palette=Image.Palette.ADAPTIVE, **options)


def turned() -> dict:
    """As a camera held upright writes it: stored on its side, with a note."""
    exif = Image.Exif()
    exif[0x0112] = 6  # the first row is the right side
    return {"exif": exif}


KINDS = {
    "grey.jpg": (halves("L", 50, 200), {}, (50,) * 3, (200,) * 3),
    "one bit.png": (halves("1", 0, 1), {}, (0,) * 3, (255,) * 3),
    "16 bits.png": (halves("I;16", 257 * 30, 257 * 200), {}, (30,) * 3, (200,) * 3),
    "grey, alpha.png": (halves("LA", (50, 0), (200, 255)), {}, (50,) * 3, (200,) * 3),
    "palette.png": (palette(), {}, RED, BLUE),
    "transparent.png": (palette(), {"transparency": b"\x00\x80"}, RED, BLUE),
    "alpha.png": (halves("RGBA", (*RED, 10), (*BLUE, 255)), {}, RED, BLUE),
    "alpha.webp": (halves("RGBA", (*RED, 90), (*BLUE, 255)), {"lossless": True}, RED, BLUE),
    "cmyk.jpg": (halves("CMYK", (0, 255, 255, 0), (255, 255, 0, 0)), {}, RED, BLUE),
    "a PNG.jpeg": (halves("RGB", RED, BLUE), {"format": "PNG"}, RED, BLUE),
    "large.jpg": (halves("RGB", RED, BLUE, 3000, 2000), {}, RED, BLUE),
    "tiny.png": (halves("RGB", RED, BLUE, 2, 1), {}, None, None),
    "turned.jpg": (halves("RGB", BLUE, RED).rotate(90, expand=True), turned(), BLUE, RED),
    "long.png": (halves("RGB", RED, BLUE, 90_000, 1), {}, None, None),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", KINDS)
def test_every_kind_becomes_rgb_upright_and_of_the_size(name, tmp_path):
    image, options, left, right = KINDS[name]
    image.save(tmp_path / name, **options)
    pixels = _decode.decode(tmp_path / name, 14)
    assert (pixels.shape, pixels.dtype) == ((14, 14, 3), np.uint8)
    np.testing.assert_array_equal(pixels, _decode.decode((tmp_path / name).read_bytes(), 14))
    if left:
        for half, colour in ((pixels[:, :4], left), (pixels[:, -4:], right)):
            assert np.abs(half.astype(int) - colour).max() <= 4  # JPEG is not exact


def triangle(size: int, target: int) -> np.ndarray:
    """`[target, size]`: what each pixel weighs if a row is brought to `target` (antialiased)."""
    step = size / target
    distances = np.abs(np.arange(size) + 0.5 - (np.arange(target)[:, None] + 0.5) * step)
    weights = np.maximum(0, 1 - distances / max(step, 1))
    return weights / weights.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("shape", [(50, 33), (33, 50), (90, 200), (12, 10), (28, 28)])
def test_the_centre_of_the_resized_image(shape, tmp_path):
    height, width = shape
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    size, shorter = 28, 32
    new = [int(side * shorter / min(shape)) for side in shape]
    rows, columns = triangle(height, new[0]), triangle(width, new[1])
    expected = np.einsum("ay,yxc,bx->abc", rows, pixels, columns)
    top, left = (round((side - size) / 2) for side in new)
    expected = expected[top : top + size, left : left + size]
    if shape == (size, size):
        expected = pixels  # has been cut already
    found = _decode.decode(tmp_path / "a.png", size)
    assert np.abs(found - expected).max() <= 1.01  # Pillow rounds twice


def test_a_large_jpeg_read_at_a_part_of_its_size_looks_the_same(tmp_path):
    y, x = np.mgrid[:800, :1000] / 50
    waves = np.stack([np.sin(x), np.cos(y), np.sin(x + y)], axis=-1)
    image = Image.fromarray((127 * waves + 128).astype(np.uint8))
    image.save(tmp_path / "a.jpg", quality=95)
    image.save(tmp_path / "a.png")
    fast, exact = (_decode.decode(tmp_path / name, 28).astype(int) for name in ("a.jpg", "a.png"))
    assert np.abs(fast - exact).max() <= 6
    assert _decode.rgb(tmp_path / "a.jpg", 32).size == (125, 100)
