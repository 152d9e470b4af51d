"""Where the time of a run goes: seconds by phase, added up across interruptions."""

import time

from memo_jax.training import Report

PHASES = ("train", "compile", "evaluate", "exemplars", "other")


class Clock:
    """Books the time since the last call under a phase; `spent` is the account.

    spent: seconds by PHASES; "waited", those of training in which no image was there; "images", the
    number of images trained on.
    """

    def __init__(self, spent: dict[str, float]):
        self.resume(spent)
        self._last = time.perf_counter()

    def resume(self, spent: dict[str, float]) -> None:
        """Goes on from the account that a checkpoint holds; what is not in it, counts from 0."""
        self.spent = {name: spent.get(name, 0.0) for name in (*PHASES, "waited", "images")}

    def lap(self, phase: str) -> None:
        """Books the time since the last lap under `phase`."""
        now = time.perf_counter()
        self.spent[phase] += now - self._last
        self._last = now

    def with_training(self, report: Report) -> dict[str, float]:
        """The account as it is in the middle of training."""
        return {
            **self.spent,
            "train": self.spent["train"] + report.train_seconds,
            "compile": self.spent["compile"] + report.compile_seconds,
            "waited": self.spent["waited"] + report.wait_seconds,
            "images": self.spent["images"] + report.images,
        }

    def add_training(self, report: Report) -> None:
        """Books a finished training; what else happened since the last lap is "other"."""
        before = self._last
        self.lap("other")
        self.spent = self.with_training(report)
        self.spent["other"] -= min(
            report.train_seconds + report.compile_seconds, self._last - before
        )
