"""Orbax checkpoints: one per finished task, one rolling inside a task; damaged ones are skipped.

    checkpoints/task_000 ...        Learner after that task (learner.py)
    checkpoints/rolling_003_000400  TrainState of task 3 after 400 steps (training.py)

Arrays are saved as one flat dictionary path -> array and read by the hosts, leaf by leaf against
the shapes that are expected: how many devices there are, and what each of them holds, is the same
to a checkpoint. Each carries the digest of its arrays, which is checked on reading.
"""

import logging
import pathlib
import re
import shutil

import jax
import numpy as np
from orbax.checkpoint import v1 as ocp

from memo_jax import parallel
from memo_jax.errors import UserError
from memo_jax.exemplars import Memory
from memo_jax.freezing import path_of
from memo_jax.learner import Learner, abstract_arrays, digest
from memo_jax.network import Network, Variables
from memo_jax.protocol import Task

log = logging.getLogger("memo_jax")


class Damaged(Exception):
    """A checkpoint that cannot be trusted."""


def _folder(workdir: pathlib.Path) -> pathlib.Path:
    return workdir.absolute() / "checkpoints"


def _save(path: pathlib.Path, arrays, meta: dict, signature: str) -> None:
    """Writes arrays, meta and the arrays' digest `signature`, atomically.

    Until it is complete the folder has another name (Orbax). What is there already under this name
    is the same state (a damaged one was put aside) and stays. Raises UserError for numbers that are
    not finite, so that the last good one stays too.
    """
    if path.exists():
        return
    flat = {path_of(p): leaf for p, leaf in jax.tree_util.tree_leaves_with_path(arrays)}
    flat = {name: leaf for name, leaf in flat.items() if leaf.size}  # Orbax refuses empty ones
    for name, leaf in flat.items():
        if not np.isfinite(np.asarray(leaf)).all():
            raise UserError(
                f"{name} holds numbers that are not finite at {path.name}, which is not saved; the "
                f"last good checkpoint is kept: lower the learning rate or look at the data"
            )
    ocp.save(path, flat, custom_metadata={**meta, "digest": signature})


def _put_aside(path: pathlib.Path, error: Damaged) -> None:
    """Warns of a damaged checkpoint and renames it, so that nothing takes it for a good one."""
    log.warning("skipped the damaged checkpoint %s: %s", path.name, error)
    parallel.wait_for_all(f"{path.name} is damaged")  # all have looked at it
    if parallel.is_lead():
        aside = path.with_name(f"{path.name}.damaged")
        shutil.rmtree(aside, ignore_errors=True)
        path.rename(aside)


def _load(path: pathlib.Path, abstract) -> tuple[dict, dict]:
    """(host arrays like the tree `abstract`, meta). Raises Damaged unless each is as expected."""
    leaves, treedef = jax.tree_util.tree_flatten_with_path(abstract)
    # Asked for NumPy arrays Orbax gives NumPy arrays. These take no memory, whatever their shape.
    blank = {path_of(p): np.broadcast_to(np.zeros((), w.dtype), w.shape) for p, w in leaves}
    empty = {k: w for k, w in blank.items() if 0 in w.shape}
    wanted = {k: w for k, w in blank.items() if k not in empty}
    expected = {k: (tuple(w.shape), str(w.dtype)) for k, w in wanted.items()}
    try:
        saved = ocp.metadata(path)
        found = {k: (tuple(m.shape), str(m.dtype)) for k, m in saved.metadata.items()}
        if found != expected:
            odd = sorted(
                k for k in found.keys() | expected.keys() if found.get(k) != expected.get(k)
            )
            raise Damaged(f"{odd[0]}: expected {expected.get(odd[0])}, found {found.get(odd[0])}")
        flat = ocp.load(path, wanted) | empty
        meta = dict(saved.custom_metadata)
    except (Damaged, MemoryError):
        raise
    except PermissionError as error:
        raise UserError(f"the checkpoint {path} cannot be read ({error.strerror})") from error
    except Exception as error:  # whatever Orbax and its storage raise on broken files
        raise Damaged(" ".join(str(error).split())[:200] or type(error).__name__) from error
    arrays = jax.tree.unflatten(treedef, [flat[path_of(p)] for p, _ in leaves])
    if digest(arrays) != meta.get("digest"):
        raise Damaged("its arrays do not match their digest")
    return arrays, meta


def _found(workdir: pathlib.Path, pattern: str) -> list[tuple[tuple[int, ...], pathlib.Path]]:
    """Complete checkpoint folders whose whole name matches, newest first, with their numbers."""
    folder = _folder(workdir)
    matches = ((re.fullmatch(pattern, p.name), p) for p in folder.glob("*"))
    found = [(tuple(map(int, m.groups())), p) for m, p in matches if m]
    return sorted(found, reverse=True)


def save_task(workdir: pathlib.Path, learner: Learner) -> None:
    """Saves the learner after its last task; the rolling checkpoints of that task go."""
    meta = {"history": list(learner.history), "spent": learner.spent}
    path = _folder(workdir) / f"task_{learner.tasks_done - 1:03d}"
    _save(path, learner.arrays(), meta, learner.digest)
    if parallel.is_lead():
        for path in _folder(workdir).glob("rolling_*"):  # interrupted saves of some included
            shutil.rmtree(path)


def restore_latest(
    workdir: pathlib.Path, net: Network, tasks: tuple[Task, ...], memory: Memory, mesh
) -> Learner | None:
    """The learner after the newest task whose checkpoint is whole; None if there is none.

    memory: an empty one of the run's size, for the shapes and for where its images lie.
    """
    for (task,), path in _found(workdir, r"task_(\d+)"):
        try:
            abstract = abstract_arrays(net, tasks[: task + 1], memory)
            arrays, meta = _load(path, abstract)
        except Damaged as error:
            _put_aside(path, error)
            continue
        variables = parallel.place(arrays["variables"], parallel.replicated(mesh))
        saved = Memory.of(**arrays["memory"], sharding=memory.images.sharding)
        return Learner(variables, saved, tuple(meta["history"]), dict(meta["spent"]))
    return None


def load_task(workdir: pathlib.Path, task: Task, abstract, mesh) -> Variables:
    """The variables after `task` of another run; nothing there is changed.

    abstract: all that its checkpoint holds (learner.abstract_arrays).
    Raises UserError if that task is not finished or its checkpoint damaged.
    """
    path = _folder(workdir) / f"task_{task.index:03d}"
    if not path.exists():
        raise UserError(f"{workdir} has not finished task {task.index + 1}; let it go on first")
    try:
        arrays, _ = _load(path, abstract)
    except Damaged as error:
        raise UserError(
            f"the checkpoint {path} is damaged ({error}); use another run or learn it again"
        ) from error
    return parallel.place(arrays["variables"], parallel.replicated(mesh))


def save_rolling(workdir: pathlib.Path, task: Task, state, spent: dict[str, float]) -> None:
    """Saves a TrainState inside `task`; older rolling checkpoints go once it is complete."""
    path = _folder(workdir) / f"rolling_{task.index:03d}_{int(state.step):06d}"
    older = [p for _, p in _found(workdir, r"rolling_(\d+)_(\d+)") if p != path]
    _save(path, state, {"spent": spent}, digest(state))
    if parallel.is_lead():
        for old in older:
            shutil.rmtree(old)


def restore_rolling(workdir: pathlib.Path, task: Task, state, mesh):
    """(TrainState, spent) of the newest whole rolling checkpoint of `task`, else None.

    state: a TrainState of the right shapes.
    """
    for (index, _), path in _found(workdir, r"rolling_(\d+)_(\d+)"):
        if index != task.index:
            continue
        try:
            restored, meta = _load(path, state)
        except Damaged as error:
            _put_aside(path, error)
        else:
            return parallel.place(restored, parallel.replicated(mesh)), dict(meta["spent"])
    return None
