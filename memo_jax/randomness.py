"""Randomness has an address: the same (seed, address) always gives the same numbers.

Nothing counts "draws so far", so a resumed run draws what the uninterrupted one would have drawn.
"""

import zlib

import jax
import numpy as np


def _word(part: int | str) -> int:
    return zlib.crc32(part.encode()) if isinstance(part, str) else part


def key_for(seed: int, *address: int | str) -> jax.Array:
    """A JAX key for an address such as `(task, "augment", epoch)`."""
    key = jax.random.key(seed)
    for part in address:
        key = jax.random.fold_in(key, _word(part))
    return key


def generator_for(seed: int, *address: int | str) -> np.random.Generator:
    """A NumPy generator for an address: what is drawn on the host, once per epoch or task.

    Initial weights and orders come from here: a jitted draw is compiled anew for every shape, and
    NumPy's streams do not change between releases of JAX.
    """
    return np.random.default_rng(words(seed, *address))


def words(seed: int, *address: int | str) -> tuple[int, ...]:
    """The seed of the NumPy generator for an address, which every process can make from it."""
    return (seed % 2**32, *(_word(part) for part in address))
