"""Random resized crops (Szegedy et al., 2015) as torchvision draws them: which part of an image.

Drawn here for single images on the host, in augment.crop_boxes for batches on the device.
"""

import math

import numpy as np

AREAS, RATIOS = (0.08, 1.0), (3 / 4, 4 / 3)
"""Of a box: its part of the image, and its width by its height."""
LOG_RATIOS = math.log(RATIOS[0]), math.log(RATIOS[1])

ATTEMPTS = 10
"""Boxes that are drawn; the first of them that fits is taken."""

Box = tuple[int, int, int, int]
"""left, top, width, height."""


def random_box(draws: np.random.Generator, width: int, height: int) -> Box:
    """A random part of an image.

    Area and logarithm of the ratio are uniform; the first of ten boxes that fits into the image is
    placed anywhere in it. If none fits, it is the largest box in the middle whose ratio is allowed.
    """
    areas = width * height * draws.uniform(*AREAS, ATTEMPTS)
    ratios = np.exp(draws.uniform(*LOG_RATIOS, ATTEMPTS))
    widths = np.rint(np.sqrt(areas * ratios)).astype(int)
    heights = np.rint(np.sqrt(areas / ratios)).astype(int)
    fits = (widths > 0) & (widths <= width) & (heights > 0) & (heights <= height)
    if not fits.any():
        box_width, box_height = largest_box(width, height)
        return (width - box_width) // 2, (height - box_height) // 2, box_width, box_height
    box_width, box_height = int(widths[fits.argmax()]), int(heights[fits.argmax()])
    left = int(draws.integers(width - box_width + 1))
    top = int(draws.integers(height - box_height + 1))
    return left, top, box_width, box_height


def largest_box(width: int, height: int) -> tuple[int, int]:
    """Width and height of the largest box of an allowed ratio in an image."""
    slimmest, widest = RATIOS
    return min(width, round(height * widest)), min(height, round(width / slimmest))
