"""A study as a table for people: each run, its state, and the time it will take."""

import pathlib
from collections.abc import Sequence

from memo_jax.logging import say, say_table
from memo_jax.study import Study, forecast, outline
from memo_jax.study.outline import Entry

COLUMNS = ("run", "setting", "method", "exemplars", "total MB", "epochs", "expected", "state")
NUMBERS = ("exemplars", "total MB", "epochs", "expected")
"""Columns of the overview, and which of them are set to the right."""


def show(
    study: Study, mine: Sequence[Entry], queued: Sequence[Entry], everyone: Sequence[Entry]
) -> None:
    """Prints a line for each of the runs `mine`: what it is, its state, the time it will take."""
    summaries = forecast.measured(study.folder)
    rows, times = [COLUMNS], []
    for entry in mine:
        source = outline.expected_lender(entry, queued, everyone)
        time = None
        if entry.to_run:
            time = forecast.seconds(entry, source is not None, summaries)
            times.append(time)
        rows.append(_row(entry, source, time))
    say(f"{study.title}: {len(mine)} of {len(study.runs)} runs, in {study.folder}")
    say_table(rows, right=NUMBERS)
    _show_sums(mine, times)


def _row(entry: Entry, source: pathlib.Path | None, time: float | None) -> tuple[str, ...]:
    plan = entry.plan
    numbers = ("", "", "")
    if plan is not None:
        base, later = plan.schedules
        epochs = f"{base.epochs} + {len(plan.tasks) - 1} x {later.epochs}"
        numbers = str(plan.ledger.exemplars), f"{plan.ledger.total_mb:.2f}", epochs
    expected = "" if not entry.to_run else "?" if time is None else forecast.words(time)
    state = _state(entry)
    if source is not None:
        state += f", base task of {source.name}"
    return entry.run.name, entry.run.setting, entry.run.method, *numbers, expected, state


def _state(entry: Entry) -> str:
    if entry.done:
        return "done"
    if entry.stuck:
        return "cannot run"
    return f"begun, {entry.tasks_done} tasks done" if entry.begun else "to do"


def _show_sums(mine: Sequence[Entry], times: Sequence[float | None]) -> None:
    """Prints what cannot run and why, and how much is left."""
    problems = {}
    for entry in mine:
        if entry.stuck:
            problems.setdefault(entry.problem, []).append(entry.run.name)
    for problem, names in problems.items():
        say(f"cannot run: {names[0]}{f' and {len(names) - 1} more' * (len(names) > 1)}: {problem}")
    known = [time for time in times if time is not None]
    line = f"{sum(entry.done for entry in mine)} done, {len(times)} to run"
    if known:
        line += f", expected {forecast.words(sum(known))}"
    if len(known) < len(times):
        line += f" ({len(times) - len(known)} of them unlike any run measured on this machine)"
    say(line)
