"""MEMO, DER and Replay in PyTorch: learn every task in order, evaluate."""

import time
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from benchmarks.job import Job
from benchmarks.torch_backbones import BACKBONES
from benchmarks.torch_data import LOADERS, Images
from benchmarks.torch_exemplars import class_means, nearest_mean_scores, select
from benchmarks.torch_network import Network
from benchmarks.torch_training import Speed, Trainer
from memo_jax.datasets import Dataset
from memo_jax.protocol import Task

RULES = ("head", "nearest_mean")
TOP = 5


class Counts(NamedTuple):
    """For each of RULES: confusion int `[R, K, K]`, and images within the min(5, K) best `[R]`."""

    confusion: np.ndarray
    top: np.ndarray


class Twin:
    """The learner: network and exemplars, and where the time of `run` went (seconds by phase)."""

    def __init__(self, job: Job, dataset: Dataset, speed: Speed, device: torch.device):
        self.job, self.speed, self.device = job, speed, device
        make = LOADERS[speed.loader]
        self.loader = make(job.augment, dataset.mean, dataset.std, device, speed.channels_last)
        self._train, self._test_labels = dataset.train, dataset.test.labels
        self._test = self.loader.place(dataset.test.images, dataset.test.labels)
        backbone, channels = BACKBONES[job.backbone], dataset.image_shape[-1]
        torch.manual_seed(job.seed)
        self.network = Network(backbone, channels, job.cut, job.tasks[0].num_new).to(device)
        empty = np.zeros((0, *dataset.image_shape), np.uint8)
        self.memory = self.loader.place(empty, np.zeros(0, int))
        self._forward = speed.compiled(self._outputs)
        self.seconds = {}

    def run(self) -> list[dict]:
        """Learns all tasks; returns for each the accuracy in percent by each of RULES."""
        return [self.learn(task) for task in self.job.tasks]

    def learn(self, task: Task) -> dict[str, float]:
        """One task: grow, train, rectify, choose exemplars, evaluate; returns the accuracies."""
        self._last = time.perf_counter()
        if not task.is_base:
            self.grow(task)
        pool = self.join(task)
        self.train(task, pool)
        self._lap("train")
        if not task.is_base and self.job.method != "replay":
            self.network.align(task.num_old)
        features = self.features(pool)
        self.memory, features = self.remember(pool, features, task)
        means = class_means(features, self.memory.labels, task.num_seen)
        self._lap("exemplars")
        counts = self.count(self.test_images(task), task, means)
        self._lap("evaluate")
        total = counts.confusion[0].sum()
        return {r: 100 * float(c.trace() / total) for r, c in zip(RULES, counts.confusion)}

    def _lap(self, phase: str) -> None:
        """Books the time since the last lap under `phase`."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        now = time.perf_counter()
        self.seconds[phase] = self.seconds.get(phase, 0.0) + now - self._last
        self._last = now

    def grow(self, task: Task) -> None:
        """The network of `task`, from that of the task before."""
        self.network.grow(task.num_new, self.job.grows, self.job.options["block_init"])

    def join(self, task: Task) -> Images:
        """What `task` may learn from: the exemplars, then its own images, class by class."""
        new = self._train.of(task.first, task.stop)
        new = self.loader.place(new.images, new.labels)
        return Images(*(torch.cat(parts) for parts in zip(self.memory, new)))

    def test_images(self, task: Task) -> Images:
        """The test images of all classes seen after `task`; they are sorted by class."""
        seen = int((self._test_labels < task.num_seen).sum())
        return Images(self._test.images[:seen], self._test.labels[:seen])

    def trainer(self, task: Task, pool_size: int) -> Trainer:
        """Freezes what does not learn in `task`, and what trains the rest."""
        job, options = self.job, self.job.options
        if job.grows and not task.is_base:
            old_blocks = options["train_old_blocks"] and job.method == "memo"
            self.network.learn(options["train_trunk"], old_blocks)
        else:
            self.network.learn()
        if self.speed.channels_last:
            self.network.to(memory_format=torch.channels_last)
        # The code of a former network counts against the number of recompilations.
        torch.compiler.reset()
        steps = -(-pool_size // job.batch_size)
        alpha = options["alpha_aux"]
        return Trainer(self.network, task, job.schedule(task), steps, self.speed, alpha)

    def train(self, task: Task, pool: Images) -> None:
        """Trains the network on the pool for all epochs of the task's schedule."""
        trainer = self.trainer(task, len(pool.labels))
        for _ in range(self.job.schedule(task)["epochs"]):
            for images, labels in self.loader.epoch(pool, self.job.batch_size):
                trainer.step(images, labels)
            trainer.means()

    @torch.inference_mode()
    def predict(self, data: Images):
        """Yields features `[B, D]`, logits `[B, K]` and labels of the images as they are."""
        self.network.eval()
        for images, labels in self.loader.plain(data, self.job.eval_batch_size):
            features, logits = self._forward(images)
            yield features, logits, labels

    def _outputs(self, images: Tensor) -> tuple[Tensor, Tensor]:
        with self.speed.autocast(self.device):
            outputs = self.network(images)
        return outputs.features, outputs.logits

    def features(self, data: Images) -> Tensor:
        """Features `[N, D]`."""
        # Cloned, as compiled code may write its next result into the same memory.
        return torch.cat([features.clone() for features, _, _ in self.predict(data)])

    def remember(self, pool: Images, features: Tensor, task: Task) -> tuple[Images, Tensor]:
        """The exemplars after `task`, and their features.

        Old classes are cut to their first picks, new ones picked by the features `[N, D]` of the
        pool's images, which come class after class.
        """
        sizes = torch.bincount(pool.labels, minlength=task.num_seen).cpu().numpy()
        starts, quota = np.cumsum(sizes) - sizes, self.job.share(task.num_seen)
        first_new = len(pool.labels) - sizes[task.first :].sum()
        picks = select(features[first_new:], sizes[task.first :], quota[task.first :])
        kept = [np.arange(min(size, q)) for size, q in zip(sizes[: task.first], quota)]
        rows = np.concatenate([start + own for start, own in zip(starts, [*kept, *picks])])
        return pool.at(rows), features[torch.as_tensor(rows, device=features.device)]

    @torch.inference_mode()
    def count(self, data: Images, task: Task, means: Tensor) -> Counts:
        """Classifies images by head and by nearest class mean `[K, D]`."""
        classes = task.num_seen
        confusion = torch.zeros(len(RULES), classes * classes, dtype=int, device=self.device)
        top = torch.zeros(len(RULES), dtype=int, device=self.device)
        for features, logits, labels in self.predict(data):
            scores = torch.stack([logits, nearest_mean_scores(features, means)])
            best = scores.topk(min(TOP, classes)).indices
            top += (best == labels[:, None]).any(2).sum(1)
            cells = labels * classes + best[:, :, 0]
            confusion.scatter_add_(1, cells, torch.ones_like(cells))
        return Counts(confusion.view(-1, classes, classes).cpu().numpy(), top.cpu().numpy())
