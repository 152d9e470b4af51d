"""The one file that knows devices: mesh, placement, who leads, how steps are driven."""

import os
import pathlib

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec


def data_mesh() -> Mesh:
    """A one-axis mesh over all devices; batches are split along its axis "data"."""
    return jax.make_mesh((jax.device_count(),), ("data",), axis_types=(AxisType.Auto,))


def replicated(mesh: Mesh) -> NamedSharding:
    """Every device holds the whole array."""
    return NamedSharding(mesh, PartitionSpec())


def sharded(mesh: Mesh, axis: int = 0) -> NamedSharding:
    """Axis `axis` of an array is divided among the devices."""
    return NamedSharding(mesh, PartitionSpec(*[None] * axis, "data"))


def place(tree, sharding: NamedSharding):
    """Puts a tree of host or device arrays where `sharding` says."""
    return jax.device_put(tree, sharding)


def fresh_copy(tree, sharding: NamedSharding):
    """A copy that shares no buffer with `tree`, so that it may be donated."""
    return jax.device_put(jax.tree.map(np.array, tree), sharding)


def is_lead() -> bool:
    """True in the one process that writes results."""
    return jax.process_index() == 0


def num_processes() -> int:
    """How many processes (hosts) work together."""
    return jax.process_count()


def prefers_scan() -> bool:
    """Whether many steps should run in one `lax.scan`.

    Never on CPU: XLA differentiates convolutions inside loops 25 to 70 times slower there.
    """
    return jax.default_backend() != "cpu"


def prefers_weight_gradients_as_products() -> bool:
    """Whether the weight gradient of a convolution is faster as a product of matrices: on CPU."""
    return jax.default_backend() == "cpu"


def adds_one_by_one() -> bool:
    """Whether long sums lose digits, as every value is added to one running total: on CPU."""
    return jax.default_backend() == "cpu"


def keep_compiled_programs() -> None:
    """Keeps what is compiled for an accelerator from run to run.

    In $JAX_COMPILATION_CACHE_DIR, else in memo_jax/compiled under the user's cache folder. Not on
    CPU, where jax 0.10 warns of every program it reads back.
    """
    if jax.default_backend() != "cpu" and not jax.config.jax_compilation_cache_dir:
        cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
        jax.config.update("jax_compilation_cache_dir", str(cache / "memo_jax" / "compiled"))


def describe() -> str:
    """The devices in words: `2 x cpu` or `8 x NVIDIA H100 80GB HBM3`."""
    return f"{jax.device_count()} x {jax.devices()[0].device_kind}"
