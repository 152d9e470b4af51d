"""Batches of images that stay on the host, as processes make them that only read images.

Without JAX, which such a process need not import. What a batch holds depends on its number alone,
so that it does not matter how many processes there are and where a run was resumed.
"""

import dataclasses
import functools

import numpy as np

from memo_jax import crops
from memo_jax.datasets import EncodedImages, Images
from memo_jax.order import Order


@dataclasses.dataclass(frozen=True)
class Batches:
    """The steps of a training from `start` on, in the form of a list.

    Step n is uint8 `[len(own), H, W, C]`: the images of its places `own` (int) within the batch,
    black where it has an image of the first `resident` ones of the pool, which are not here, or
    none at all. images: all other ones. crops: address of the random crops that encoded images
    get, a part of its own for each epoch and image; None for their centres.
    """

    images: Images
    resident: int
    order: Order
    own: np.ndarray
    start: int
    stop: int
    crops: tuple[int, ...] | None

    def __len__(self) -> int:
        return self.stop - self.start

    def __getitem__(self, number: int) -> np.ndarray:
        epoch, step = divmod(self.start + number, self.order.steps)
        places = _indices(self.order, epoch)[step, self.own] - self.resident
        batch = np.zeros((len(places), *self.images.shape[1:]), np.uint8)
        for row in np.flatnonzero(places >= 0):
            batch[row] = self._image(places[row], epoch)
        return batch

    def _image(self, place: int, epoch: int) -> np.ndarray:
        if not isinstance(self.images, EncodedImages):
            return self.images[place]
        if self.crops is None:
            return self.images.centre(place)
        draws = np.random.default_rng([*self.crops, epoch, place])
        return self.images.crop(place, functools.partial(crops.random_box, draws))


@functools.lru_cache(maxsize=2)
def _indices(order: Order, epoch: int) -> np.ndarray:
    """Two epochs are kept: where one ends, readers are at work on both."""
    return order.of(epoch)
