"""Memory in bytes: parameters and exemplars in one currency.

An exemplar costs one byte per channel and pixel, a parameter of trunk or blocks four bytes. Heads
and BatchNorm running statistics do not count.
"""

import dataclasses
import math

import numpy as np

from memo_jax.errors import UserError

MB = 2**20
BYTES_PER_PARAMETER = 4


@dataclasses.dataclass(frozen=True)
class Ledger:
    """What a run holds at its end: number of exemplars and of parameters, bytes of an image."""

    exemplars: int
    parameters: int
    image_bytes: int

    @property
    def exemplar_mb(self) -> float:
        return self.exemplars * self.image_bytes / MB

    @property
    def model_mb(self) -> float:
        return self.parameters * BYTES_PER_PARAMETER / MB

    @property
    def total_mb(self) -> float:
        return self.exemplar_mb + self.model_mb

    def as_dict(self) -> dict[str, float]:
        """The `memory` entry of summary.json, unrounded."""
        return {
            "exemplars": self.exemplars,
            "exemplar_mb": self.exemplar_mb,
            "parameters": self.parameters,
            "model_mb": self.model_mb,
            "total_mb": self.total_mb,
        }


def image_bytes(image_shape: tuple[int, int, int]) -> int:
    """Bytes of one exemplar."""
    return math.prod(image_shape)


def aligned_exemplars(base: int, spared_parameters: int, image_shape) -> int:
    """Exemplars of a method that spares parameters against the method it is aligned to.

    base exemplars + floor(spared parameters * 4 / bytes of an image).
    """
    return base + spared_parameters * BYTES_PER_PARAMETER // image_bytes(image_shape)


def exemplars_within(total_mb: float, parameters: int, image_shape) -> int:
    """The most exemplars that fit beside the parameters into total_mb."""
    left = total_mb * MB - parameters * BYTES_PER_PARAMETER
    return max(0, math.floor(left / image_bytes(image_shape)))


def shares(size: int, num_seen: int, allocation: str) -> np.ndarray:
    """How many slots each class may fill, int `[K]`.

    "equal": floor(size / classes), the rest stays unused (the published code); "fill": the first
    classes get one more each until nothing is left; "everything": each keeps all it has.
    """
    if allocation == "everything":
        return np.full(num_seen, size)
    each, rest = divmod(size, num_seen)
    return each + (np.arange(num_seen) < (rest if allocation == "fill" else 0))


def check(exemplars: int, num_classes: int, num_images: int | None) -> None:
    """Raises UserError unless each class has an exemplar and each exemplar an image.

    num_images: number of training images, None where it is not known.
    """
    if exemplars < num_classes:
        raise UserError(
            f"memory: expected at least one exemplar for each of {num_classes} classes, found a "
            f"budget of {exemplars}; raise memory.exemplars or the budget it follows from"
        )
    if num_images is not None and exemplars > num_images:
        raise UserError(
            f"memory: expected at most as many exemplars as training images ({num_images}), "
            f"found a budget of {exemplars}; lower memory.exemplars"
        )
