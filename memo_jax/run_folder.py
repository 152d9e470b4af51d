"""A run's folder: who it belongs to, and what is in it.

config.json, metrics.jsonl, summary.json, checkpoints/, confusion/, tensorboard/, report/
"""

import contextlib
import fcntl
import json
import pathlib
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata

from ml_collections import ConfigDict

from memo_jax import parallel
from memo_jax.errors import UserError
from memo_jax.logging import write_json

SAME_DATA = (
    "dataset.path",
    "dataset.source",
    "dataset.workers",
    "base_from",
    "memory.placement",
)
"""Settings that say where something lies or who reads it, not what is computed; they may change
between runs."""


def default(config: ConfigDict, config_name: str) -> pathlib.Path:
    """runs/<config>/<method>-order<class order seed>-seed<seed>."""
    order = config.protocol.class_order_seed
    return pathlib.Path("runs", config_name, f"{config.method.name}-order{order}-seed{config.seed}")


@contextlib.contextmanager
def claimed(workdir: pathlib.Path, config: ConfigDict) -> Iterator[None]:
    """Makes the folder, or checks that it belongs to this very config, and keeps others out of it.

    Raises UserError if it cannot be written to, if another process works in it, and with the
    differences listed if a run with another config lives there.
    """
    try:
        workdir.mkdir(parents=True, exist_ok=True)
        lock = (workdir / ".lock").open("a")
    except OSError as error:
        raise UserError(
            f"the run folder {workdir} cannot be written to ({error.strerror}); "
            f"choose another with --workdir"
        ) from error
    with lock:
        if parallel.is_lead():
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise UserError(
                    f"another process is working in {workdir}; wait for it or choose another "
                    f"folder with --workdir"
                ) from error
        expect_same_config(workdir, config)
        yield


def expect_same_config(workdir: pathlib.Path, config: ConfigDict) -> None:
    """Raises UserError, with the differences, if the folder is that of a run with another config.

    A folder that does not exist yet, or is empty, is anybody's.
    """
    asked = requested(workdir)
    if asked is None:
        foreign = [name for name in ("checkpoints", "summary.json") if (workdir / name).exists()]
        if foreign:
            raise UserError(
                f"{workdir} holds {foreign[0]} but no config.json to tell whose they are; "
                f"choose another folder with --workdir"
            )
        return
    there, here = flat(asked), flat(_plain(config))
    differing = sorted(
        name
        for name in there.keys() | here.keys()
        if there.get(name) != here.get(name) and name not in SAME_DATA
    )
    if differing:
        listed = "; ".join(f"{n}: {there.get(n)} there, {here.get(n)} here" for n in differing)
        raise UserError(
            f"{workdir} belongs to a run with another config ({listed}); "
            f"choose another folder with --workdir or the same settings"
        )


def requested(workdir: pathlib.Path) -> dict | None:
    """The settings that the run in the folder was asked for; None if no run has begun there.

    Raises UserError if they cannot be read.
    """
    path = workdir / "config.json"
    try:
        asked = json.loads(path.read_text())["requested"]
        flat(asked)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f"{path} is not a config of this program; choose another folder with --workdir"
        ) from error
    return asked


def describe(workdir: pathlib.Path, config: ConfigDict, resolved: dict) -> None:
    """Writes config.json once: as requested, as resolved, and by what it is computed."""
    path = workdir / "config.json"
    if path.exists() or not parallel.is_lead():
        return
    packages = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy")
    write_json(
        path,
        {
            "requested": _plain(config),
            "resolved": resolved,
            "versions": {"python": sys.version.split()[0]}
            | {name: metadata.version(name) for name in packages},
            "devices": parallel.describe(),
            "processes": parallel.num_processes(),
            "commit": commit(),
            "command": " ".join([pathlib.Path(sys.executable).name, *sys.argv]),
        },
    )


def _plain(config: ConfigDict) -> dict:
    """The config as JSON would give it back (tuples as lists)."""
    return json.loads(json.dumps(config.to_dict()))


def flat(tree: dict, prefix: str = "") -> dict:
    """A tree of settings as one dictionary: `{"schedule.batch_size": 128, ...}`."""
    found = {}
    for name, value in tree.items():
        path = f"{prefix}{name}"
        found |= flat(value, f"{path}.") if isinstance(value, dict) else {path: value}
    return found


def commit() -> str | None:
    """The git commit this code comes from, None outside a repository."""
    here = pathlib.Path(__file__).parent
    try:
        return subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=40"],
            cwd=here,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
