"""The one file that knows devices and processes: mesh, placement, who leads, how steps are driven.

Several processes (hosts) run the same program on the same data in the same order. Every one of them
holds all replicated arrays; batches are split over the devices of all.
"""

import contextlib
import os
import pathlib
from collections.abc import Iterator

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec


def data_mesh(count: int | None = None) -> Mesh:
    """A one-axis mesh over all devices, or the first `count` of them.

    Batches are split along its axis "data".
    """
    devices = jax.devices()[:count]
    return jax.make_mesh((len(devices),), ("data",), axis_types=(AxisType.Auto,), devices=devices)


def replicated(mesh: Mesh) -> NamedSharding:
    """Every device holds the whole array."""
    return NamedSharding(mesh, PartitionSpec())


def sharded(mesh: Mesh, axis: int = 0) -> NamedSharding:
    """Axis `axis` of an array is divided among the devices."""
    return NamedSharding(mesh, PartitionSpec(*[None] * axis, "data"))


def place(tree, sharding: NamedSharding):
    """Puts a tree of host or device arrays, the same in every process, where `sharding` says."""
    if sharding.is_fully_addressable:
        return jax.device_put(tree, sharding)
    return jax.tree.map(lambda leaf: _place_own_part(leaf, sharding), tree)


def _place_own_part(leaf, sharding: NamedSharding) -> jax.Array:
    """Each process fills its own devices; `jax.device_put` would first compare all processes."""
    if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        data = _place_own_part(jax.random.key_data(leaf), sharding)
        return jax.random.wrap_key_data(data, impl=jax.random.key_impl(leaf))
    leaf = np.asarray(leaf)
    return jax.make_array_from_callback(leaf.shape, sharding, lambda part: leaf[part])


def fresh_copy(tree, sharding: NamedSharding):
    """A copy that shares no buffer with `tree`, so that it may be donated."""
    return place(jax.tree.map(np.array, tree), sharding)


def is_lead() -> bool:
    """True in the one process that writes results."""
    return jax.process_index() == 0


def num_processes() -> int:
    """How many processes (hosts) work together."""
    return jax.process_count()


def largest(number: int) -> int:
    """The largest of the numbers that the processes hold; all of them must ask."""
    if num_processes() == 1:
        return number
    return int(multihost_utils.process_allgather(np.int32(number)).max())


def wait_for_all(what: str) -> None:
    """Returns when every process has come to this point, `what`."""
    if num_processes() > 1:
        multihost_utils.sync_global_devices(what)


@contextlib.contextmanager
def lead_first(what: str) -> Iterator[None]:
    """The block runs in the lead process first, then in the others, which find what it made."""
    if not is_lead():
        wait_for_all(what)
    try:
        yield
    finally:
        if is_lead():
            wait_for_all(what)


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


def program_bytes(compiled: jax.stages.Compiled) -> dict[str, int]:
    """What a program takes on each device by the compiler's own analysis, empty without one.

    beyond: without its arguments, which are there before it.
    """
    found = compiled.memory_analysis()
    if found is None:
        return {}
    arguments, outputs = found.argument_size_in_bytes, found.output_size_in_bytes
    temporary, reused = found.temp_size_in_bytes, found.alias_size_in_bytes
    beyond = outputs + temporary - reused
    return {
        "arguments": arguments,
        "outputs": outputs,
        "temporary": temporary,
        "beyond": beyond,
        "total": arguments + beyond,
    }


def device_bytes(mesh: Mesh) -> int | None:
    """The memory that each device of this process has for arrays; None where they do not tell."""
    told = [(device.memory_stats() or {}).get("bytes_limit") for device in mesh.local_devices]
    return None if None in told else min(told)


def describe() -> str:
    """The devices in words: `2 x cpu` or `8 x NVIDIA H100 80GB HBM3`."""
    return f"{jax.device_count()} x {jax.devices()[0].device_kind}"
