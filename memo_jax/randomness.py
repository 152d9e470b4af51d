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
    return fold(jax.random.key(seed), *address)


def fold(key: jax.Array, *address: int | str) -> jax.Array:
    """Descends from `key` along an address."""
    for part in address:
        key = jax.random.fold_in(key, _word(part))
    return key


def permutation(n: int, seed: int, *address: int | str) -> np.ndarray:
    """A permutation of 0..n-1 on the host, int `[n]`.

    NumPy, because a compiled one would be compiled anew for every size of a task.
    """
    words = [seed % 2**32, *(_word(part) for part in address)]
    return np.random.default_rng(words).permutation(n)
