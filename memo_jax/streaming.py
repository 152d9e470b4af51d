"""Images that stay on the host while a network learns them, fetched ahead of the steps."""

import contextlib
import functools
import gc
import os
import signal
import threading
import time
from collections.abc import Iterable, Iterator

import jax
from absl import flags

from memo_jax import parallel
from memo_jax.batches import Batches
from memo_jax.datasets import EncodedImages, Images
from memo_jax.datasets._encoded import num_cores
from memo_jax.errors import UserError
from memo_jax.order import Order

AHEAD = 2
"""Batches that are ready on the device, and as many for each process that reads."""

FREE_PART = 0.5
"""Part of the device's free memory that a task's new images may take; the rest is for the steps."""


def stays_on_host(images: Images, streaming: str, placement: jax.sharding.NamedSharding) -> bool:
    """Whether images are streamed, by the setting dataset.streaming.

    placement: where they would be otherwise. "auto" streams what does not fit into half of the
    memory that is free on each device, as measured; all processes decide alike.
    """
    needed = images.nbytes / (1 if placement.is_fully_replicated else placement.mesh.size)
    return bool(parallel.largest(int(streams(needed, streaming, parallel.free_bytes()))))


def streams(needed: float, streaming: str, free: int | None) -> bool:
    """The same for images that need so many bytes of a device, of which `free` are (or None)."""
    if streaming != "auto":
        return streaming == "always"
    return free is not None and needed > FREE_PART * free


@contextlib.contextmanager
def feed(
    images: Images,
    resident: int,
    order: Order,
    steps: range,
    crops: tuple[int, ...] | None,
    sharding: jax.sharding.NamedSharding,
) -> Iterator[Iterator[jax.Array]]:
    """Gives an iterator over the batches of `steps`: uint8 `[B, H, W, C]` on the devices.

    The arguments are those of batches.Batches. Encoded images are read by processes of their own,
    arrays by a thread. Raises UserError for an image that cannot be read, and if such a process is
    lost.
    """
    if not steps:
        yield iter(())
        return
    import grain  # only here: it takes a second

    if not flags.FLAGS.is_parsed():  # Grain asks for flags, of which a notebook knows nothing
        flags.FLAGS.mark_as_parsed()
    own = parallel.own_rows(sharding, order.batch)
    source = Batches(images, resident, order, own, steps.start, steps.stop, crops)
    shape = (order.batch, *images.shape[1:])
    workers = _workers(images)
    batches = (
        grain.MapDataset.source(source)
        .to_iter_dataset(grain.ReadOptions(num_threads=1, prefetch_buffer_size=AHEAD))
        .mp_prefetch(
            grain.MultiprocessingOptions(num_workers=workers, per_worker_buffer_size=AHEAD),
            worker_init_fn=functools.partial(_begin_worker, os.getpid()),
        )
        .map(lambda batch: parallel.place_own_rows(batch, own, sharding, shape))
    )
    ahead = grain.experimental.ThreadPrefetchIterDataset(batches, prefetch_buffer_size=AHEAD)
    found = _with_clear_errors(ahead)
    try:
        yield found
    finally:
        found.close()


def _workers(images: Images) -> int:
    """Processes that read: none for arrays, of which rows are only copied."""
    if not isinstance(images, EncodedImages):
        return 0
    return num_cores() if images.workers is None else images.workers


def _with_clear_errors(batches: Iterable[jax.Array]) -> Iterator[jax.Array]:
    """The batches, and an end to their readers, of which nothing is held when this is closed."""
    iterator = iter(batches)
    try:
        yield from iterator
    except RuntimeError as error:  # Grain's, when a process of its own has ended
        raise UserError(
            f"a process that reads images was lost ({' '.join(str(error).split())[:100]}); if "
            "memory was short, use fewer --config.dataset.workers; the same command goes on from "
            "the last checkpoint"
        ) from error
    finally:
        iterator.close()
        del iterator
        gc.collect()  # Grain's objects refer to one another, and to memory shared with the readers


def _begin_worker(parent: int, number: int, count: int) -> None:
    """A process that reads ends with the one that trains, which alone answers wishes to stop."""
    for wish in (signal.SIGTERM, signal.SIGINT):
        signal.signal(wish, signal.SIG_IGN)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
