"""One side in a process of its own: reads requests, answers with what it measured.

python -m benchmarks.worker {jax,torch,scaling}, started by `processes`. Requests and answers are
lines of JSON; whatever else is printed goes to the log.
"""

import importlib
import json
import os
import sys
import time
import traceback

from benchmarks.job import Job
from memo_jax.errors import UserError


class Worker:
    """Answers requests with the help of a side (jax_side.Side, torch_side.Side, scaling_side.Side).

    A side has a method for each section (job.Section), of a task: `train`, `forward`, `herding`,
    `evaluate`; and `describe`, `run` and `peak_device_bytes`.
    """

    def __init__(self, side):
        self._side, self._work = side, None

    def describe(self) -> dict:
        """The device, the versions of libraries, and how the side computes."""
        return self._side.describe()

    def prepare(self, phase: str, task: int) -> dict:
        """Makes the section `phase` of a task and warms it up.

        compile_seconds: what it took to compile, and by what the first time was slower than the
        second. memory: bytes by name.
        """
        self._work = None  # lets go of the last section's memory
        section = getattr(self._side, phase)(self._side.job.tasks[task])
        self._work = section.work
        first, second = (self.measure()["seconds"] for _ in range(2))
        return {
            "images": section.images,
            "steps": section.steps,
            "compile_seconds": section.compile_seconds + max(0.0, first - second),
            "memory": section.memory(),
        }

    def measure(self) -> dict:
        """Seconds of one repeat of the prepared section."""
        began = time.perf_counter()
        self._work()
        return {"seconds": time.perf_counter() - began}

    def run(self) -> dict:
        """A whole run: its seconds and accuracies, and the most memory held, in bytes."""
        began = time.perf_counter()
        found = self._side.run()
        seconds = time.perf_counter() - began
        found["phases"]["rest"] = seconds - sum(found["phases"].values())
        return {**found, "seconds": seconds, **self.peak()}

    def peak(self) -> dict:
        """The most memory that this process has held so far."""
        return {"host_bytes": peak_host_bytes(), "device_bytes": self._side.peak_device_bytes()}


def peak_host_bytes() -> int:
    """The most memory this process has held."""
    try:
        with open("/proc/self/status") as status:
            (line,) = (line for line in status if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        import resource

        # Only where there is no /proc: on Linux this counts what the parent held when it forked.
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def main(side_name: str) -> None:
    """Answers until there are no more requests; "begin" says what is measured from then on."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    worker = None
    for line in sys.stdin:
        request = json.loads(line)
        name = request.pop("do")
        try:
            if name == "begin":
                worker = None  # lets go of the last one's memory
                side = importlib.import_module(f"benchmarks.{side_name}_side").Side
                job = Job.from_dict(request.pop("job"))
                worker = Worker(side(job=job, **request))
                answer = worker.describe()
            else:
                answer = getattr(worker, name)(**request)
        except UserError as error:
            answer = {"error": str(error)}
        except Exception as error:
            traceback.print_exc()
            answer = {"failed": " ".join(f"{type(error).__name__}: {error}".split())}
        answers.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
