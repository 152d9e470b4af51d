"""The order in which a task visits its images; known to all who read them, wherever they run."""

import dataclasses

import numpy as np

PAD = -1
"""In place of an image, where a batch is filled up."""


@dataclasses.dataclass(frozen=True)
class Order:
    """Every epoch visits each of `size` images once, `batch` of them in a step.

    address: where the randomness lies (randomness.words); the epoch is its last part.
    """

    address: tuple[int, ...]
    size: int
    batch: int

    @property
    def steps(self) -> int:
        """Steps of an epoch."""
        return -(-self.size // self.batch)

    def of(self, epoch: int) -> np.ndarray:
        """The images of each step of an epoch, int32 `[steps, batch]`; the last is filled up."""
        order = np.random.default_rng([*self.address, epoch]).permutation(self.size)
        indices = np.full(self.steps * self.batch, PAD, np.int32)
        indices[: self.size] = order
        return indices.reshape(self.steps, self.batch)
