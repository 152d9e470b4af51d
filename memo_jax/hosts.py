"""Several processes, on one host or many, as one run: how they meet, and how they part.

Each process starts the same command. They find one another by flags or by what SLURM, Cloud TPU,
Kubernetes and Open MPI say of themselves, or JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES and
JAX_PROCESS_ID (`jax.distributed.initialize` reads all these).
"""

import contextlib
import os
import subprocess
import sys
import traceback
from collections.abc import Iterator

import jax

from memo_jax.errors import UserError
from memo_jax.interrupts import Interrupted

HEARTBEAT_SECONDS = 30
"""Silence after which a process counts as lost, and all the others are ended."""
MEETING_SECONDS = 300
"""How long processes wait for one another at the start."""

ENDED = "ended by itself"
LOST = (
    "error: this process was ended: another process of the run is lost, or this one crashed (see "
    "above). All others stop too; start all of them again with the same command and the run goes "
    "on from its last checkpoint"
)


@contextlib.contextmanager
def joined(
    coordinator: str | None, processes: int | None, process: int | None, detect: bool
) -> Iterator[None]:
    """The block runs together with the other processes, or alone if nothing says otherwise.

    coordinator: host:port of process 0; processes: how many there are; process: which of them this
    is. detect: leaves all that to what the cluster says of itself.
    Raises UserError, before any work, if the three are not given together or the others are not
    met. Ends the process at once where the block fails, so that the others do not wait for it.
    """
    if not _are_several(coordinator, processes, process, detect):
        yield
        return
    watcher = _watcher()
    try:
        _meet(coordinator, processes, process)
        yield
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        watcher.communicate(ENDED)
        _end(2)
    except Interrupted:  # all of them are, at the same point
        _part(watcher)
        raise
    except jax.errors.JaxRuntimeError as error:  # the watcher tells what that may mean
        print(" ".join(str(error).split())[:500], file=sys.stderr)
        _end(1)
    except SystemExit as stop:  # asked twice to stop, or before anything was there to save
        watcher.communicate(ENDED)
        _end(stop.code)
    except BaseException:
        traceback.print_exc()
        _end(1)
    _part(watcher)


def _part(watcher: subprocess.Popen) -> None:
    """Waits until all processes are here, and says that this one ends as it should."""
    jax.distributed.shutdown()
    watcher.communicate(ENDED)


def _are_several(
    coordinator: str | None, processes: int | None, process: int | None, detect: bool
) -> bool:
    given = {"--coordinator": coordinator, "--processes": processes, "--process": process}
    missing = [name for name, value in given.items() if value is None]
    if len(missing) == len(given):
        return detect or _in_a_cluster()
    if missing:
        raise UserError(
            f"expected {', '.join(given)} together, found no {missing[0]}; give all three, or "
            f"--distributed where the cluster tells them"
        )
    if not 0 <= process < processes:
        raise UserError(f"--process: expected 0 to {processes - 1}, found {process}")
    return processes > 1


def _in_a_cluster() -> bool:
    """Whether the environment says for sure that other processes of this run are being started."""
    there = os.environ.get
    steps = there("SLURM_STEP_NUM_TASKS", "1"), there("OMPI_COMM_WORLD_SIZE", "1")
    named = "," in there("TPU_WORKER_HOSTNAMES", "") or "JAX_COORDINATOR_ADDRESS" in os.environ
    return named or any(int(number) > 1 for number in steps)


def _meet(coordinator: str | None, processes: int | None, process: int | None) -> None:
    try:
        jax.distributed.initialize(
            coordinator,
            processes,
            process,
            heartbeat_timeout_seconds=HEARTBEAT_SECONDS,
            initialization_timeout=MEETING_SECONDS,
            shutdown_timeout_seconds=HEARTBEAT_SECONDS,
        )
    except (RuntimeError, ValueError) as error:
        raise UserError(
            f"the processes of this run did not meet ({' '.join(str(error).split())[:200]}); start "
            f"all of them, each with the same --coordinator and --processes and its own --process"
        ) from error


def _watcher() -> subprocess.Popen:
    """A process that says what happened if this one ends without telling it that all is well.

    The distributed runtime may end a process that has lost another one in the middle of anything.
    """
    words = f"import sys; sys.stdin.read() or print({LOST!r}, file=sys.stderr)"
    return subprocess.Popen(
        [sys.executable, "-c", words], stdin=subprocess.PIPE, text=True, start_new_session=True
    )


def _end(code: int) -> None:
    """Ends the process without waiting for the others, as a normal end would."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
