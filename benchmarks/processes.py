"""The processes that measure, one per side, of which only one works at a time."""

import dataclasses
import json
import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from typing import Protocol

from ml_collections import ConfigDict

from benchmarks.job import Job
from memo_jax import huge_pages
from memo_jax.errors import UserError

ROOT = pathlib.Path(__file__).parent.parent
NAMES = {"jax": "JAX", "torch": "PyTorch", "scaling": "JAX"}
ENVIRONMENT = {
    # What was compiled earlier would not be compiled again.
    "JAX_ENABLE_COMPILATION_CACHE": "false",
    "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1",
    # JAX would take most of the GPU's memory at once and leave PyTorch little.
    "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
}


class SideFailed(Exception):
    """A process ended, or raised what nobody expected; says where its log is."""


def exit_code(command: Callable[[], None]) -> int:
    """Runs a command; what went wrong becomes a line: 0 done, 1 a side failed, 2 bad input."""
    # So that the processes it starts end with this one.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        command()
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except SideFailed as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130
    return 0


def say(line: str) -> None:
    """Progress, apart from the results."""
    print(line, file=sys.stderr, flush=True)


def prepare_folder(folder: pathlib.Path, sides: Iterable[str]) -> None:
    """Makes the folder of the results, with an empty log for each side."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for side in sides:
            (folder / f"{side}.log").write_text("")
    except OSError as error:
        raise UserError(f"--out: {error.filename} cannot be written ({error.strerror})") from error


class Measured(Protocol):
    """What a process is told: a job, its config, steps and speed (jax_side.Side), and the folder
    of its log, `out`.
    """

    job: Job
    config: ConfigDict
    steps: int
    speed: dict
    out: pathlib.Path


class Process:
    """One side in a process of its own; `about` is what it says about device and versions.

    environment: variables besides those that it inherits.
    """

    def __init__(self, side: str, what: Measured, **environment: str):
        self._side, self._log = side, what.out / f"{side}.log"
        paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        with self._log.open("a") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.worker", side],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={
                    **os.environ,
                    **ENVIRONMENT,
                    **huge_pages.variable(os.environ),
                    **environment,
                    "PYTHONPATH": os.pathsep.join(paths),
                },
            )
        try:
            self.about = self.begin(what)
        except BaseException:
            self.stop()
            raise

    def __enter__(self) -> "Process":
        return self

    def __exit__(self, *_) -> None:
        self.stop()

    def begin(self, what: Measured) -> dict:
        """Says what is to be measured from now on."""
        return self.ask(
            "begin",
            job=dataclasses.asdict(what.job),
            config=what.config.to_dict(),
            steps=what.steps,
            speed=what.speed,
        )

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
