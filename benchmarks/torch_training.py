"""Training steps in PyTorch: losses, learning rate, SGD."""

import dataclasses
import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.torch_network import Network, Outputs
from memo_jax.errors import UserError
from memo_jax.protocol import Task


@dataclasses.dataclass(frozen=True)
class Speed:
    """How PyTorch computes; the defaults are what is fastest without further means.

    precision: "float32" or "bfloat16" (autocast). compile: the mode of torch.compile, or None.
    loader: who makes the batches, "device" or "pil" (torch_data.py).
    """

    channels_last: bool = True
    precision: str = "float32"
    compile: str | None = None
    loader: str = "device"

    def autocast(self, device: torch.device) -> torch.autocast:
        """The context in which the network runs."""
        return torch.autocast(device.type, torch.bfloat16, enabled=self.precision == "bfloat16")

    def compiled(self, function: Callable) -> Callable:
        """`function`, through torch.compile if that is asked for."""
        if self.compile is None:
            return function
        # Shapes change once an epoch, to those of the last batch; each gets its own code.
        return torch.compile(function, mode=self.compile, dynamic=False)


def terms(outputs: Outputs, labels: Tensor, task: Task, alpha_aux: float) -> dict[str, Tensor]:
    """Means over the batch; "loss" is minimised: cross-entropy + alpha_aux * auxiliary.

    The auxiliary head, where there is one, tells the new classes (1..n) and any old one (0) apart.
    """
    head = functional.cross_entropy(outputs.logits, labels)
    if outputs.aux_logits is None:
        return {"loss": head}
    aux_labels = (labels - task.first + 1).clamp_min(0)
    auxiliary = functional.cross_entropy(outputs.aux_logits, aux_labels)
    total = head + alpha_aux * auxiliary
    return {"loss": total, "cross_entropy": head, "auxiliary": auxiliary}


def learning_rate(schedule: dict, step: int, steps_per_epoch: int) -> float:
    """The rate of a step, counted from 0; `schedule` as memo_jax.optimizers.Schedule."""
    if schedule["kind"] == "cosine":
        done = step / (schedule["epochs"] * steps_per_epoch)
        return schedule["learning_rate"] * 0.5 * (1 + math.cos(math.pi * done))
    passed = sum(step >= milestone * steps_per_epoch for milestone in schedule["milestones"])
    return schedule["learning_rate"] * schedule["gamma"] ** passed


class Trainer:
    """Trains a network, already told what learns, on one task. Nothing in a step waits for it.

    sums: over the images since the last `means`: loss terms, images classified correctly, images.
    """

    def __init__(
        self,
        network: Network,
        task: Task,
        schedule: dict,
        steps_per_epoch: int,
        speed: Speed,
        alpha_aux: float,
    ):
        self._task, self._schedule, self._steps_per_epoch = task, schedule, steps_per_epoch
        self._step = 0
        device = network.head.weight.device

        def objective(images: Tensor, labels: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
            with speed.autocast(device):
                outputs = network(images)
            found = terms(outputs, labels, task, alpha_aux)
            sums = {name: term.detach() * len(labels) for name, term in found.items()}
            sums["correct"] = (outputs.logits.argmax(1) == labels).sum()
            return found["loss"], sums

        self._objective = speed.compiled(objective)
        self._optimizer = torch.optim.SGD(
            [p for p in network.parameters() if p.requires_grad],
            lr=schedule["learning_rate"],
            momentum=schedule["momentum"],
            weight_decay=schedule["weight_decay"],
            fused=True,
        )
        self._network = network
        self._sums, self._images = {}, 0

    def step(self, images: Tensor, labels: Tensor) -> None:
        """One step on normalised images `[B, C, H, W]` and labels int64 `[B]`."""
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate(self._schedule, self._step, self._steps_per_epoch)
        self._optimizer.zero_grad(set_to_none=True)
        loss, sums = self._objective(images, labels)
        loss.backward()
        self._optimizer.step()
        self._step += 1
        self._images += len(labels)
        for name, value in sums.items():
            self._sums[name] = self._sums.get(name, 0) + value

    def means(self) -> dict[str, float]:
        """Means over the images since the last call, accuracy in percent; waits for the device.

        Raises UserError when a loss is no longer finite.
        """
        means = {name: float(value) / self._images for name, value in self._sums.items()}
        self._sums, self._images = {}, 0
        if not math.isfinite(means["loss"]):
            raise UserError(
                f"PyTorch: the loss was not finite in task {self._task.index + 1} by step "
                f"{self._step}; lower the learning rate"
            )
        correct = means.pop("correct")
        return {**means, "accuracy": 100 * correct}
