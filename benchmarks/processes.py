"""The processes that measure, one per side, of which only one works at a time."""

import dataclasses
import json
import os
import pathlib
import subprocess
import sys

from benchmarks.settings import Settings
from memo_jax.errors import UserError

ROOT = pathlib.Path(__file__).parent.parent
NAMES = {"jax": "JAX", "torch": "PyTorch"}
ENVIRONMENT = {
    # What was compiled earlier would not be compiled again.
    "JAX_ENABLE_COMPILATION_CACHE": "false",
    "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1",
    # JAX would take most of the GPU's memory at once and leave PyTorch little.
    "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
}


class SideFailed(Exception):
    """A process ended, or raised what nobody expected; says where its log is."""


class Process:
    """One side in a process of its own; `about` is what it says about device and versions."""

    def __init__(self, side: str, settings: Settings):
        self._side, self._log = side, settings.out / f"{side}.log"
        paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        with self._log.open("a") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.worker", side],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ, **ENVIRONMENT, "PYTHONPATH": os.pathsep.join(paths)},
            )
        try:
            self.about = self.ask(
                "begin",
                job=dataclasses.asdict(settings.job),
                config=settings.config.to_dict(),
                steps=settings.steps,
                speed=settings.speed,
            )
        except BaseException:
            self.stop()
            raise

    def __enter__(self) -> "Process":
        return self

    def __exit__(self, *_) -> None:
        self.stop()

    def ask(self, do: str, **request) -> dict:
        """Waits for the answer to a request (a method of worker.Worker).

        Raises UserError for what the side finds wrong with its input, SideFailed for the rest.
        """
        try:
            self._process.stdin.write(json.dumps({"do": do, **request}) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        answer = json.loads(line) if line else {"failed": f"it ended during {do!r}"}
        if "error" in answer:
            raise UserError(answer["error"])
        if "failed" in answer:
            raise SideFailed(f"{NAMES[self._side]} failed: {answer['failed']}; see {self._log}")
        return answer

    def stop(self) -> None:
        """Ends the process, whatever it is doing."""
        self._process.kill()
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()
