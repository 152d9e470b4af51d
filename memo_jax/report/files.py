"""The JSON files that a report reads, and whether they are whole."""

import json
import pathlib

from memo_jax.clock import PHASES
from memo_jax.errors import UserError

BY_TASK = {"classes_seen", "accuracy_matrix", "top5", "old_class_accuracy", "new_class_accuracy"}
BY_TASK |= {"base_class_accuracy", "later_class_accuracy"}
SUMMARY = {"num_tasks", "tasks_done", "accuracy", "averages", "average_accuracy", "last_accuracy"}
SUMMARY |= {"forgetting", "memory", "seconds", "devices", "base_from", *BY_TASK}
"""What a report reads of summary.json; BY_TASK: lists, of one entry for each task learned."""


def json_object(path: pathlib.Path, remedy: str) -> dict:
    """A JSON object from a file. Raises UserError, ending with the remedy, if it holds none."""
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read ({error}); {remedy}") from error
    if not isinstance(content, dict):
        raise UserError(f"{path}: expected a JSON object, found {content!r:.40}; {remedy}")
    return content


def summary(path: pathlib.Path) -> dict | None:
    """What summary.json says, None if there is none yet; UserError if it is not whole."""
    if not path.exists():
        return None
    remedy = "remove it and run launch.py on that folder again, which rewrites it"
    content = json_object(path, remedy)
    missing = sorted(SUMMARY - content.keys())
    if missing:
        raise UserError(f"{path} lacks {', '.join(missing)}: of an older version; {remedy}")
    try:
        _expect_whole(content)
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        what = f"no {error} in it" if isinstance(error, KeyError) else error
        raise UserError(f"{path} is damaged ({what}); {remedy}") from error
    return content


def _expect_whole(summary: dict) -> None:
    """Raises an error that says what is missing or no number among what a report shows."""
    tasks, accuracy = summary["tasks_done"], summary["accuracy"]
    lists = {name: summary[name] for name in BY_TASK} | {"head": accuracy["head"], **accuracy}
    uneven = sorted(name for name, values in lists.items() if len(values) != tasks)
    if uneven or not tasks:
        raise ValueError(f"not {tasks} values in {', '.join(uneven)}")
    memory, seconds = summary["memory"], summary["seconds"]
    _expect_numbers([*lists.values(), [summary["averages"][rule] for rule in ("head", *accuracy)]])
    _expect_numbers([memory[name] for name in ("exemplars", "total_mb", "model_mb")])
    _expect_numbers([seconds[name] for name in ("total", *PHASES)])
    _expect_numbers([summary[name] for name in ("average_accuracy", "last_accuracy", "forgetting")])


def _expect_numbers(value) -> None:
    """Lists, nested, of numbers; None stands for one that does not exist."""
    if isinstance(value, list):
        for part in value:
            _expect_numbers(part)
    elif value is not None and not is_number(value):
        raise ValueError(f"{value!r:.40} is no number")


def is_number(value) -> bool:
    """Whether a value of a JSON file is a number (true and false are none)."""
    return isinstance(value, int | float) and not isinstance(value, bool)
