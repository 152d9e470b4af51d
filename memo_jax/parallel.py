"""The one file that knows devices and processes: mesh, placement, who leads, how steps are driven.

Several processes (hosts) run the same program on the same data in the same order. Every one of them
holds all replicated arrays; batches are split over the devices of all, and images if so wished.
"""

import contextlib
import functools
import math
import os
import pathlib
from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
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


PLACEMENTS = {"replicated": replicated, "sharded": sharded}
"""What a device holds of an array of images: all of it, or its part of the rows."""
PIECE = 2**26
"""Bytes of divided images that are brought to one place at a time."""


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


def place_from(rows: Callable[[slice], np.ndarray], shape: tuple[int, ...], sharding) -> jax.Array:
    """An array of that shape, sharded along axis 0; `rows(part)` gives what is placed here."""
    return jax.make_array_from_callback(shape, sharding, lambda index: rows(index[0]))


def own_rows(sharding: NamedSharding, size: int) -> np.ndarray:
    """Those of `size` rows, sharded along axis 0, that this process has devices for, int `[n]`."""
    indices = sharding.addressable_devices_indices_map((size,)).values()
    return np.unique(np.concatenate([np.arange(size)[index] for index in indices]))


def place_own_rows(
    rows: np.ndarray, own: np.ndarray, sharding: NamedSharding, shape: tuple[int, ...]
) -> jax.Array:
    """An array of that shape, of which each process has the rows `own`, as of `own_rows`."""
    place = np.full(shape[0], -1)
    place[own] = np.arange(len(own))
    return place_from(lambda part: rows[place[part]], shape, sharding)


def free_bytes() -> int | None:
    """Memory that is free on each device of this process; None where they do not tell, as CPUs."""
    told = [device.memory_stats() for device in jax.local_devices()]
    if not all(told):
        return None
    return min(stats["bytes_limit"] - stats["bytes_in_use"] for stats in told)


def fresh_copy(tree, sharding: NamedSharding):
    """A copy that shares no buffer with `tree`, so that it may be donated."""
    return place(jax.tree.map(np.array, tree), sharding)


def place_rows(array: np.ndarray, sharding: NamedSharding) -> jax.Array:
    """Puts `[N, ...]` where `sharding` says; if that divides rows, zeros make the parts equal."""
    missing = 0 if sharding.is_fully_replicated else -len(array) % sharding.mesh.size
    if missing:
        array = np.concatenate([array, np.zeros((missing, *array.shape[1:]), array.dtype)])
    return place(array, sharding)


def is_divided(array: jax.Array) -> bool:
    """Whether each device holds only its part of the array."""
    return not array.sharding.is_fully_replicated


def on_parts(function: Callable, mesh: Mesh, parts, whole):
    """function(parts, whole) on each device, of its rows of the tree `parts` and all of `whole`.

    The number of rows must be a multiple of the devices. The rows of the result are divided, too.
    """
    rows, everything = PartitionSpec("data"), PartitionSpec()
    specs = {"in_specs": (rows, everything), "out_specs": rows}
    return jax.shard_map(function, mesh=mesh, **specs, check_vma=False)(parts, whole)


def take(images: jax.Array, rows: jax.Array, mesh: Mesh, divided: bool) -> jax.Array:
    """images[rows], divided over the devices, whose multiple the number of rows must be.

    images `[N, ...]`, rows int `[B]`; divided: whether each device holds only its part of the
    images, which cannot be seen inside jit. Then every device looks up those that it has, and they
    are exchanged: no device ever holds more of the others' images than a batch.
    """
    if not divided:
        return jax.lax.with_sharding_constraint(jnp.take(images, rows, axis=0), sharded(mesh))

    def look_up(part: jax.Array, rows: jax.Array) -> jax.Array:
        places = rows - jax.lax.axis_index("data") * len(part)
        here = (places >= 0) & (places < len(part))
        found = jnp.take(part, jnp.where(here, places, 0), axis=0)
        found = jnp.where(here.reshape(-1, *[1] * (part.ndim - 1)), found, 0)
        return jax.lax.psum_scatter(found, "data", tiled=True)

    return on_parts(look_up, mesh, images, rows)


@functools.partial(jax.jit, static_argnames="mesh")
def _take_everywhere(images: jax.Array, rows: jax.Array, mesh: Mesh) -> jax.Array:
    """As `take` of divided images; every device gets all rows."""
    return jax.lax.with_sharding_constraint(take(images, rows, mesh, True), replicated(mesh))


def read(images: jax.Array, rows: np.ndarray) -> np.ndarray:
    """images[rows] on every host, rows int `[R]`; divided images are read a PIECE at a time."""
    if not is_divided(images):
        return np.asarray(jnp.take(images, rows, axis=0))
    mesh, shape = images.sharding.mesh, images.shape[1:]
    most = max(1, PIECE // (math.prod(shape) * images.dtype.itemsize))
    size = -(-max(1, min(len(rows), most)) // mesh.size) * mesh.size
    found = np.empty((len(rows), *shape), images.dtype)
    for start in range(0, len(rows), size):
        part = rows[start : start + size]
        piece = _take_everywhere(images, np.pad(part, (0, size - len(part))), mesh)
        found[start : start + size] = np.asarray(piece)[: len(part)]
    return found


def is_lead() -> bool:
    """True in the one process that writes results."""
    return jax.process_index() == 0


def num_processes() -> int:
    """How many processes (hosts) work together."""
    return jax.process_count()


def largest(number: int) -> int:
    """The largest of the numbers that the processes hold; all of them must ask."""
    return max(_of_all(number))


def differ(number: int) -> bool:
    """Whether the processes hold different numbers; all of them must ask."""
    return len(set(_of_all(number))) > 1


def _of_all(number: int) -> list[int]:
    if num_processes() == 1:
        return [number]
    return multihost_utils.process_allgather(np.int32(number)).tolist()


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
