"""Shows a study and runs what is left of it, one run after another."""

import copy
import fcntl
import gc
import json
import pathlib
import sys
import traceback
from collections.abc import Sequence

from ml_collections import ConfigDict

from memo_jax import estimate, experiment, parallel
from memo_jax.errors import UserError
from memo_jax.interrupts import Interrupted
from memo_jax.logging import say, write_json
from memo_jax.problems import Problems
from memo_jax.report.load import STUDY_FORMAT
from memo_jax.study import Study, of_one, outline, overview
from memo_jax.study.outline import Entry


def run(
    study: Study, only: str | None = None, shard: str | None = None, dry_run: bool = False
) -> list[str]:
    """Runs what is left of the chosen part of a study; returns the names of runs that failed.

    only, shard: as in outline.chosen and in_shard. dry_run: shows what would be done, and leaves
    no trace. A failed run does not keep the others from running. But of several processes that work
    together none can go on alone: there whatever keeps a run from being finished is raised, unless
    it is known beforehand to all of them.
    Raises UserError, before any work, for what is wrong with the study as a whole; Interrupted,
    after saving, when SIGTERM or Ctrl-C asked to stop.
    """
    everyone = outline.entries(study)
    mine = outline.in_shard(outline.chosen(everyone, only), shard)
    queued = outline.queue(mine)
    stuck = [entry for entry in mine if entry.stuck]
    if stuck and len(stuck) == len(mine) and not dry_run:
        raise UserError(f"{stuck[0].run.name}: {stuck[0].problem}")
    if parallel.differ(len(stuck)):
        alone = "another process cannot run some of these runs, and says why"
        raise UserError(f"{stuck[0].run.name}: {stuck[0].problem}" if stuck else alone)
    overview.show(study, mine, queued, everyone)
    if dry_run:
        return []
    describe(study)
    failed = [entry.run.name for entry in stuck]
    for number, entry in enumerate(queued, 1):
        say(f"\n[{number} of {len(queued)}] {entry.run.name}")
        if not _succeeds(entry, everyone):
            failed.append(entry.run.name)
        gc.collect()  # a run's arrays lie in cycles; on the device they would crowd the next one
    say(f"\n{len(mine) - len(failed)} of {len(mine)} runs are done, in {study.folder}")
    return failed


def estimate_one(config: ConfigDict, folder: pathlib.Path, gigabytes: float | None = None) -> None:
    """Shows an experiment as it stands and what each task that is left will take; trains nothing.

    Leaves no trace. gigabytes: as in estimate.show. Raises UserError if it cannot run or does not
    fit into the memory.
    """
    study = of_one(config, folder)
    (entry,) = outline.entries(study)
    if entry.stuck:
        raise UserError(entry.problem)
    overview.show(study, [entry], outline.queue([entry]), [entry])
    if not entry.to_run:
        return
    if entry.class_size is None:
        say(f"images of a class: not known beforehand, taken as {outline.MOST_OF_A_CLASS}")
    problems = Problems(config, entry.plan, outline.blank(config), parallel.data_mesh())
    estimate.show(problems, entry.tasks_done, gigabytes)


def _succeeds(entry: Entry, everyone: Sequence[Entry]) -> bool:
    """Runs or resumes a run; False, with a line that says why, if it could not be finished."""
    config = copy.deepcopy(entry.run.config)
    try:
        source = outline.lender(entry, everyone)
        config.base_from = source and str(source)
        experiment.run(config, entry.folder)
    except Interrupted:
        raise
    except Exception as error:
        if parallel.num_processes() > 1:  # the other processes may not have met it
            raise
        what = error
        if not isinstance(error, UserError):  # such as no memory left: the others may fit
            traceback.print_exc()
            what = f"{type(error).__name__}: {error}"
        print(f"error: {entry.run.name}: {what}", file=sys.stderr)
        return False
    return True


def describe(study: Study) -> None:
    """Writes study.json: which runs there are, whether begun or not.

    Runs that were once asked for (with other seeds, say) and have begun stay listed.
    Raises UserError if the folder cannot be written to or is in other use.
    """
    path = study.folder / "study.json"
    runs = [
        {"name": r.name, "setting": r.setting, "method": r.method, "labels": dict(r.labels)}
        for r in study.runs
    ]
    try:
        study.folder.mkdir(parents=True, exist_ok=True)
        with (study.folder / ".lock").open("a") as lock:
            if parallel.is_lead():
                fcntl.flock(lock, fcntl.LOCK_EX)  # another shard may be at the same point
                runs += _earlier(path, study)
                head = {"format": STUDY_FORMAT, "name": study.name}
                head |= {"title": study.title, "kind": study.kind}
                write_json(path, {**head, "runs": runs})
    except OSError as error:
        raise UserError(
            f"the study folder {study.folder} cannot be written to ({error.strerror}); "
            f"choose another with --workdir"
        ) from error


def _earlier(path: pathlib.Path, study: Study) -> list[dict]:
    """The begun runs of an earlier study.json that are not among those of `study`."""
    if (study.folder / "config.json").exists():
        raise UserError(f"{study.folder} is the folder of a run; choose another with --workdir")
    if not path.exists():
        return []
    try:
        there = json.loads(path.read_text())
        name, runs = there["name"], {run["name"]: run for run in there["runs"]}
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} is damaged ({error!r}); remove it and try again") from error
    if name != study.name:
        raise UserError(
            f"{study.folder} holds the study {name}, not {study.name}; choose another folder with "
            f"--workdir"
        )
    now = {run.name for run in study.runs}
    return [r for n, r in runs.items() if n not in now and (study.folder / n).is_dir()]
