"""What is measured of the PyTorch twin: the same sections as of memo_jax."""

import dataclasses
import os

import torch

from benchmarks.job import Job, Section
from benchmarks.torch_data import Images
from benchmarks.torch_exemplars import normalise
from benchmarks.torch_training import Speed
from benchmarks.torch_twin import Twin
from memo_jax.protocol import Task


class Side:
    """The sections of a job. steps: of training in a section on a CPU, unless PIL loads them."""

    def __init__(self, job: Job, config: dict, steps: int, speed: dict):
        self.job, self._steps, self._speed = job, steps, Speed(**speed)
        # As many threads as XLA takes: one for each CPU this process may use.
        torch.set_num_threads(len(os.sched_getaffinity(0)))
        torch.backends.cudnn.benchmark = True
        self._device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self._dataset = job.load()

    def describe(self) -> dict:
        """Device, versions, and how it computes."""
        gpu = self._device.type == "cuda"
        return {
            "platform": "gpu" if gpu else "cpu",
            "device": torch.cuda.get_device_name() if gpu else "cpu",
            "devices": 1,
            "threads": torch.get_num_threads(),
            "versions": {"torch": torch.__version__},
            "options": dataclasses.asdict(self._speed),
        }

    def train(self, task: Task) -> Section:
        """Training steps: some of an epoch on a CPU, else a whole one."""
        twin, pool = self._twin_and_pool(task)
        trainer = twin.trainer(task, len(pool.labels))
        batch, count = self.job.batch_size, len(pool.labels)
        steps = -(-count // batch)
        if self._device.type == "cpu" and self._speed.loader == "device":
            steps = min(steps, self._steps)

        def work() -> None:
            for _, batch_of in zip(range(steps), twin.loader.epoch(pool, batch)):
                trainer.step(*batch_of)
            self._wait()

        return Section(work, min(count, steps * batch), steps)

    def forward(self, task: Task) -> Section:
        """Features and logits of one evaluation batch."""
        twin, size = self._twin(task), self.job.eval_batch_size
        test = self._dataset.test
        rows = torch.arange(size) % len(test)
        data = twin.loader.place(test.images, test.labels).at(rows)

        def work() -> None:
            list(twin.predict(data))
            self._wait()

        return Section(work, size)

    def herding(self, task: Task) -> Section:
        """The memory after a task, features given."""
        twin, pool = self._twin_and_pool(task)
        features = self._features(len(pool.labels), twin)

        def work() -> None:
            twin.remember(pool, features, task)
            self._wait()

        return Section(work, int((pool.labels >= task.first).sum()))

    def evaluate(self, task: Task) -> Section:
        """Both predictions for the test images of all classes seen."""
        twin = self._twin(task)
        data, means = twin.test_images(task), normalise(self._features(task.num_seen, twin))

        def work() -> None:
            twin.count(data, task, means)

        return Section(work, len(data.labels))

    def run(self) -> dict:
        """The whole run, from loading the data on."""
        twin = Twin(self.job, self.job.load(), self._speed, self._device)
        rows = twin.run()
        return {
            "phases": twin.seconds,
            "accuracy": {rule: [row[rule] for row in rows] for rule in rows[0]},
        }

    def peak_device_bytes(self) -> int | None:
        """The most memory that tensors held on the device, None on a CPU."""
        return torch.cuda.max_memory_allocated() if self._device.type == "cuda" else None

    def _twin(self, task: Task) -> Twin:
        """An untrained twin, grown for `task`."""
        twin = Twin(self.job, self._dataset, self._speed, self._device)
        for each in self.job.tasks[1 : task.index + 1]:
            twin.grow(each)
        twin.trainer(task, 1)  # freezes, and lays the weights out
        return twin

    def _twin_and_pool(self, task: Task) -> tuple[Twin, Images]:
        twin, train = self._twin(task), self._dataset.train
        rows = self.job.pool_rows(train.labels, task)
        return twin, twin.loader.place(train.images[rows], train.labels[rows])

    def _features(self, count: int, twin: Twin) -> torch.Tensor:
        width = twin.network.head.in_features
        return torch.from_numpy(self.job.features(count, width)).to(self._device)

    def _wait(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize()
