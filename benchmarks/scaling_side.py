"""What benchmarks.scaling measures: the sections of jax_side, on some of the devices."""

import dataclasses
import os

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import jax_side
from benchmarks.job import Job, Section
from memo_jax import budget, exemplars, parallel
from memo_jax.errors import UserError
from memo_jax.protocol import Task


class Side(jax_side.Side):
    """As jax_side.Side; speed: {"devices": how many of those there are, None for all}."""

    def __init__(self, job: Job, config: dict, steps: int, speed: dict):
        super().__init__(job, config, steps, speed)
        wanted = speed["devices"]
        if wanted and jax.device_count() < wanted:
            raise UserError(f"expected {wanted} devices, JAX has {jax.device_count()}")
        self._mesh = parallel.data_mesh(wanted)
        self._placed = parallel.replicated(self._mesh)

    def describe(self) -> dict:
        """As jax_side.Side; and the memory of a device, and whether it tells what it held."""
        return {
            **super().describe(),
            "memory_bytes": memory_bytes(),
            "tells_peak": self.peak_device_bytes() is not None,
        }

    def train(self, task: Task) -> Section:
        """As jax_side.Side. Raises UserError for a step that the device has no room for."""
        section = super().train(task)
        needed, there = section.memory().get("step_total", 0), memory_bytes()
        if needed > there:
            raise UserError(
                f"a training step needs {needed / budget.MB:,.0f} MB, the device has "
                f"{there / budget.MB:,.0f} MB"
            )
        return section

    def evaluate(self, task: Task) -> Section:
        """As jax_side.Side; a step is a batch."""
        section = super().evaluate(task)
        return dataclasses.replace(section, steps=-(-section.images // self.job.eval_batch_size))

    def means(self, task: Task) -> Section:
        """The class means of a full memory, for predictions by the nearest, features given."""
        count = self.job.exemplars
        features = jnp.asarray(self.job.features(count, self._width(task)))
        labels = jnp.asarray(np.arange(count) % task.num_seen)

        def work() -> None:
            jax.block_until_ready(exemplars.class_means(features, labels, task.num_seen))

        return Section(work, count)


def memory_bytes() -> int:
    """What a device has; the machine's memory where devices do not tell, as on a CPU."""
    host = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return (jax.devices()[0].memory_stats() or {}).get("bytes_limit", host)
