"""Linear heads: `{"kernel": [features, classes], "bias": [classes]}`."""

import jax
import jax.numpy as jnp
import numpy as np

Head = dict[str, jax.Array | np.ndarray]


def init_linear(rng: np.random.Generator, num_features: int, num_classes: int) -> Head:
    """A fresh head: kernel U(-b, b) with b = sqrt(3 / features), zero bias."""
    bound = (3.0 / num_features) ** 0.5
    kernel = rng.uniform(-bound, bound, (num_features, num_classes)).astype(np.float32)
    return {"kernel": kernel, "bias": np.zeros(num_classes, np.float32)}


def apply(head: Head, features: jax.Array) -> jax.Array:
    """Logits `[B, K]` of features `[B, D]`, in float32 whatever the features are."""
    # "highest", because accelerators would otherwise round the factors of a float32 product.
    features = features.astype(jnp.float32)
    return jnp.matmul(features, head["kernel"], precision="highest") + head["bias"]


def widen(head: Head, num_features: int, num_classes: int, rng: np.random.Generator) -> Head:
    """Grows a head: old weights keep their place, new rows and columns are fresh."""
    rows, columns = head["kernel"].shape
    grown = init_linear(rng, num_features, num_classes)
    grown["kernel"][:rows, :columns] = head["kernel"]
    grown["bias"][:columns] = head["bias"]
    return grown


def align(head: Head, num_old: int) -> Head:
    """Weight aligning (Zhao et al. 2020): evens out the norms of old and new classes.

    The weights of the classes from `num_old` on are multiplied by the mean norm of the old
    classes' weights over that of the new ones; the bias stays.
    """
    norms = jnp.linalg.norm(head["kernel"], axis=0)
    gamma = norms[:num_old].mean() / norms[num_old:].mean()
    return {**head, "kernel": head["kernel"].at[:, num_old:].multiply(gamma)}
