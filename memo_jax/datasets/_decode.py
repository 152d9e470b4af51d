"""One encoded image (JPEG, PNG, WebP) to bytes of RGB at a given size."""

import contextlib
import io
import math
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

from memo_jax.crops import Box

EXTENSIONS = (".jpg", ".jpeg", ".png", ".webp")
"""Names of images end in one of these, in whatever case; what is inside decides how to read it."""

_FORMATS = ("JPEG", "PNG", "WEBP")
_ORIENTATION = 0x0112  # of EXIF: 5 to 8 lie on their sides
_MARGIN = 256 / 224  # published: the shorter side becomes 256 pixels, of which 224 are kept
_LONGEST = 4  # sides: of a longer image only the middle is resized, or it might take gigabytes


class BadImage(Exception):
    """An image that cannot be read; its text, one line, is the reason."""


def decode(source: Path | bytes, size: int) -> np.ndarray:
    """The centre of an image, uint8 `[size, size, 3]`; `source` is its file or its content.

    As the published code tests: the shorter side becomes size * 256/224 pixels (bilinear), of
    which the centre is cut out. An image of exactly this size is taken as it is: it has been cut
    already, as those of Tiny-ImageNet are.
    Raises BadImage.
    """
    image = rgb(source, round(size * _MARGIN))
    if image.size != (size, size):
        image = _centre(_with_shorter_side(image, round(size * _MARGIN)), size, size)
    return np.asarray(image)


def crop(source: Path | bytes, size: int, choose: Callable[[int, int], Box]) -> np.ndarray:
    """A part of an image, resized (bilinear) to uint8 `[size, size, 3]`.

    choose: (width, height) of the upright image -> the part. A JPEG is read at a half, a quarter or
    an eighth of its size where that leaves the part at least twice as large as it will be.
    Raises BadImage.
    """
    with _opened(source) as image:
        turned = image.getexif().get(_ORIENTATION, 1) >= 5
        width, height = image.size[::-1] if turned else image.size
        left, top, box_width, box_height = choose(width, height)
        scale = 2 * max(size / box_width, size / box_height)
        image.draft(None, tuple(math.ceil(scale * side) for side in image.size))
        whole = _upright_rgb(image)
    across, down = whole.width / width, whole.height / height
    corners = left * across, top * down, (left + box_width) * across, (top + box_height) * down
    part = whole.crop(tuple(map(round, corners)))
    return np.asarray(part.resize((size, size), Image.BILINEAR))


def rgb(source: Path | bytes, shorter: int) -> Image.Image:
    """The whole image in RGB, upright; at least twice `shorter` pixels high and wide if it can be.

    A larger JPEG is read at a half, a quarter or an eighth of its size, which is several times
    faster and, with twice the pixels that are needed, as good.
    Raises BadImage.
    """
    with _opened(source) as image:
        image.draft(None, (2 * shorter, 2 * shorter))
        return _upright_rgb(image)


def dimensions(source: Path | bytes) -> tuple[int, int]:
    """Width and height as the file's header has them. Raises BadImage."""
    with _opened(source) as image:
        return image.size


@contextlib.contextmanager
def _opened(source: Path | bytes) -> Iterator[Image.Image]:
    """The image, not yet decoded; whatever fails in the block is a BadImage."""
    file = io.BytesIO(source) if isinstance(source, bytes) else source
    try:
        with Image.open(file, formats=_FORMATS) as image:
            yield image
    except MemoryError:
        raise
    except Exception as error:  # a damaged file can fail in any way
        raise BadImage(_reason(error)) from error


def _upright_rgb(image: Image.Image) -> Image.Image:
    """Grey is repeated, CMYK and palettes are converted, 16 bits become 8, and transparency is
    dropped, as torchvision does; that the camera's turn (EXIF) is undone is ours.
    """
    image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I"):  # grey of 16 bits, which Pillow would clip at 255
        return Image.fromarray((np.asarray(image) / 257).round().astype(np.uint8)).convert("RGB")
    if image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")  # Pillow warns of the direct way
    return image.convert("RGB")


def _with_shorter_side(image: Image.Image, shorter: int) -> Image.Image:
    """Resized as torchvision's Resize: the longer side is rounded down."""
    most = _LONGEST * min(image.size)
    image = _centre(image, min(image.width, most), min(image.height, most))
    sides = [side * shorter // min(image.size) for side in image.size]
    return image.resize(sides, Image.BILINEAR)


def _centre(image: Image.Image, width: int, height: int) -> Image.Image:
    """The middle of an image, placed as by torchvision's CenterCrop."""
    left, top = round((image.width - width) / 2), round((image.height - height) / 2)
    return image.crop((left, top, left + width, top + height))


def _reason(error: Exception) -> str:
    if isinstance(error, Image.UnidentifiedImageError):
        return "no JPEG, PNG or WebP"
    return " ".join(str(error).split()) or type(error).__name__
