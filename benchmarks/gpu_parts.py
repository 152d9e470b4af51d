"""Processes with a time limit each, of which every one is logged and none harms another."""

import contextlib
import dataclasses
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from benchmarks.gpu_pack import last_line
from memo_jax.interrupts import Interrupts

ROOT = Path(__file__).parent.parent
GRACE = 30
"""Seconds before its end in which a part may save, at most a quarter of its time."""
LEAST = 5
"""Seconds with which nothing is begun."""
STOPPED = 128 + signal.SIGTERM


@dataclasses.dataclass(frozen=True)
class Part:
    """Python with `words`, at most `seconds` long, `env` on top of the environment."""

    name: str
    words: tuple[str, ...]
    seconds: float
    env: dict[str, str] = dataclasses.field(default_factory=dict)


def run_parts(parts: Iterable[Part], work: Path, ends: float, at_once: int = 1) -> bool:
    """Runs what is not done yet until time.monotonic() is `ends`; True if then all is done.

    Shortly before its limit a part gets SIGTERM, at its limit it is ended. work/NAME.log has what
    it says, work/parts.jsonl a line of how it went. SIGTERM and Ctrl-C end all parts and exit.
    """
    waiting = [part for part in parts if part.name not in done(work)]
    complete, running = True, []
    with Interrupts() as interrupts:  # a process must not be lost while it is being started
        try:
            while (waiting or running) and not interrupts.requested:
                while waiting and len(running) < at_once:
                    part = waiting.pop(0)
                    if ends - time.monotonic() < LEAST:
                        complete = False
                        print(f"{part.name}: no time left, name it again next time", flush=True)
                    else:
                        running.append(_Running(part, work, ends))
                time.sleep(0.05)
                for each in [each for each in running if each.over()]:
                    running.remove(each)
                    complete &= each.finish() == 0
        finally:
            for each in running:
                each.finish()
    if interrupts.requested:
        sys.exit(128 + interrupts.requested)
    return complete


class _Running:
    """A part that has begun."""

    def __init__(self, part: Part, work: Path, ends: float):
        self._part, self._work, self._began = part, work, time.monotonic()
        self._ends = min(ends, self._began + part.seconds)
        self._warns = self._ends - min(GRACE, (self._ends - self._began) / 4)
        self._log = work / f"{part.name}.log"
        with self._log.open("a") as log:
            self._said = log.tell()
            self._process = subprocess.Popen(
                [sys.executable, *part.words],
                cwd=ROOT,
                env={**os.environ, **part.env},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=0,
            )

    def over(self) -> bool:
        """Whether it has ended, or must; asks it once to save and stop."""
        now = time.monotonic()
        if now > self._warns:
            self._warns = math.inf
            self._process.terminate()
        return self._process.poll() is not None or now > self._ends

    def finish(self) -> int:
        """Ends it with all that it has started, and returns its exit code."""
        code = self._process.poll()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        code = self._process.wait() if code is None else code
        said = last_line(self._log.read_bytes()[self._said :].decode(errors="replace"))
        record(self._work, self._part.name, time.monotonic() - self._began, code, said)
        return code


def record(work: Path, name: str, seconds: float, code: int, said: str) -> None:
    """Adds a line to parts.jsonl and prints it."""
    how = {
        0: "done",
        STOPPED: "stopped when its time was up",
        -signal.SIGTERM: "stopped before it had really begun",
        -signal.SIGKILL: "killed, as time or memory were used up",
    }
    how = how.get(code, f"failed ({code})")
    print(f"{name}: {how}, {seconds:.0f} s: {said}", flush=True)
    line = {"part": name, "outcome": how, "code": code, "seconds": round(seconds, 1), "said": said}
    with (work / "parts.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")


def lines(work: Path) -> list[dict]:
    """All lines of parts.jsonl."""
    path = work / "parts.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def done(work: Path) -> set[str]:
    """Names of the parts that have ended well."""
    return {line["part"] for line in lines(work) if line["code"] == 0}
