"""What is measured of memo_jax: its own training driver, predictor, herding and whole runs."""

import os
import pathlib
import tempfile
import time
from importlib import metadata

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from benchmarks.job import Job, Section
from memo_jax import evaluation, exemplars, experiment, parallel, planning, training
from memo_jax.order import PAD
from memo_jax.problems import Problems
from memo_jax.protocol import Task


class Side:
    """The sections of a job. steps: of training in a section, where they are driven one by one."""

    def __init__(self, job: Job, config: dict, steps: int, speed: dict):
        self.job, self._config, self._steps = job, ConfigDict(config), steps
        self._dataset = job.load()
        self._plan = planning.make(self._config, self._dataset)
        self._mesh = parallel.data_mesh()
        self._placed = parallel.replicated(self._mesh)

    def describe(self) -> dict:
        """Device, versions, and how it computes."""
        device = jax.devices()[0]
        return {
            "platform": {"cuda": "gpu", "rocm": "gpu"}.get(device.platform, device.platform),
            "device": device.device_kind,
            "devices": jax.device_count(),
            "threads": len(os.sched_getaffinity(0)),
            "versions": {name: metadata.version(name) for name in ("jax", "jaxlib", "flax")},
            "options": {"precision": self._config.precision},
        }

    def train(self, task: Task) -> Section:
        """Training steps: some of an epoch on a CPU, a whole one where it is one dispatch."""
        variables, teacher = self._network(task)
        pool = self._pool(task)
        problem = self._problems.training(task, variables, teacher)
        scan = self._problems.scan
        state = training.start(problem, variables, pool)
        driver = training.Driver(problem, state, pool, scan)
        rows = problem.order(pool).of(epoch=0)
        rows = rows if scan else rows[: self._steps]

        def work() -> None:
            nonlocal state
            for first in range(0, len(rows), driver.steps_per_dispatch):
                state = driver(state, rows[first : first + driver.steps_per_dispatch])

        def memory() -> dict[str, int]:
            params = state.variables["params"]
            return {
                "parameters": num_bytes((params["trunk"], params["blocks"])),
                "training_state": num_bytes(state),
                "pool": num_bytes(pool),
                **driver.memory,
            }

        images = int((rows != PAD).sum())
        return Section(work, images, len(rows), driver.compile_seconds, memory)

    def forward(self, task: Task) -> Section:
        """Features and logits of one evaluation batch."""
        variables, predict, seconds = self._predictor(task)
        images = self._test_images()
        rows = np.arange(predict.batch) % len(images)

        def work() -> None:
            jax.block_until_ready([out[1:] for out in predict(variables, images, rows)])

        return Section(work, len(rows), compile_seconds=seconds)

    def herding(self, task: Task) -> Section:
        """The memory after a task, features given."""
        pool, size = self._pool(task), self.job.exemplars
        features = jnp.asarray(self.job.features(pool.size, self._width(task)))
        selection, allocation = self._config.memory.selection, self._plan.allocation
        made = None

        def work() -> None:
            nonlocal made
            made, of_them = exemplars.refresh(
                size, pool, features, task, selection, allocation, self._placed
            )
            jax.block_until_ready((made, of_them))

        images = int((np.asarray(pool.labels) >= task.first).sum())
        return Section(work, images, memory=lambda: {"exemplars": made.images.nbytes})

    def evaluate(self, task: Task) -> Section:
        """Both predictions for the test images of all classes seen."""
        variables, predict, seconds = self._predictor(task)
        images, labels = self._test_images(), self._dataset.test.labels
        means = None
        if self.job.exemplars:
            means = exemplars.normalise(self.job.features(task.num_seen, self._width(task)))

        def work() -> None:
            evaluation.count(predict, variables, means, images, labels, task)

        return Section(work, int((labels < task.num_seen).sum()), compile_seconds=seconds)

    def run(self) -> dict:
        """The whole run, by experiment.run, in a folder that is thrown away."""
        with tempfile.TemporaryDirectory() as folder:
            summary = experiment.run(self._config, pathlib.Path(folder) / "run")
        phases = {name: summary["seconds"][name] for name in ("exemplars", "evaluate")}
        phases["train"] = summary["seconds"]["train"] + summary["seconds"]["compile"]
        return {
            "phases": phases,
            "accuracy": summary["accuracy"],
        }

    def peak_device_bytes(self) -> int | None:
        """The most memory held on the device, None where it does not tell."""
        return (jax.devices()[0].memory_stats() or {}).get("peak_bytes_in_use")

    @property
    def _problems(self) -> Problems:
        return Problems(self._config, self._plan, self._dataset, self._mesh)

    def _network(self, task: Task) -> tuple[dict, dict | None]:
        """Untrained variables for `task`, and those before it (None in the base task)."""
        before = variables = None
        for each in self.job.tasks[: task.index + 1]:
            before, variables = variables, self._plan.net.expand(variables, each, self.job.seed)
        return parallel.place((variables, before), self._placed)

    def _width(self, task: Task) -> int:
        return self._plan.net.backbone.feature_dim * self.job.blocks(task)

    def _pool(self, task: Task) -> exemplars.Pool:
        train = self._dataset.train
        rows = self.job.pool_rows(train.labels, task)
        return exemplars.Pool(
            *parallel.place((train.images[rows], train.labels[rows]), self._placed)
        )

    def _test_images(self) -> jax.Array:
        return parallel.place(self._dataset.test.images, self._placed)

    def _predictor(self, task: Task) -> tuple[dict, evaluation.Predictor, float]:
        """Variables, what predicts with them, and the seconds that it took to compile."""
        variables, _ = self._network(task)
        began = time.perf_counter()
        predict = self._problems.predictor(variables)
        return variables, predict, time.perf_counter() - began


def num_bytes(tree) -> int:
    """Bytes of a tree of arrays."""
    return sum(leaf.nbytes for leaf in jax.tree.leaves(tree))
