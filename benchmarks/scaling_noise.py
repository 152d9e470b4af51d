"""Made-up images in a dataset's place, where its shape matters and not what it shows."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from memo_jax import datasets
from memo_jax.datasets import Dataset, Split


def dataset(image_shape: Sequence[int], train: Sequence[int], test: Sequence[int]) -> Dataset:
    """Random bytes of `image_shape` (H, W, C); train, test: how many images of each class."""
    made, draws = datasets.blank("noise", image_shape, train, test), np.random.default_rng(0)

    def fill(split: Split) -> Split:
        shape = split.images.shape
        noise = np.frombuffer(draws.bytes(math.prod(shape)), np.uint8)
        return Split(noise.reshape(shape), split.labels)

    return dataclasses.replace(made, train=fill(made.train), test=fill(made.test))
