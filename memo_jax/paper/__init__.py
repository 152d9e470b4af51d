"""The numbers of the paper's tables (Zhou et al., ICLR 2023), to compare with.

tables.json holds `accuracy` per setting and method, `memory`, the 17 tables of models and
exemplars at equal memory, `measures` (AUC, APM) and `notes`.
"""

import dataclasses
import functools
import json
import pathlib


@functools.cache
def tables() -> dict:
    """The content of tables.json."""
    return json.loads((pathlib.Path(__file__).parent / "tables.json").read_text())


@dataclasses.dataclass(frozen=True)
class MemoryTable:
    """One of the 17 tables: a setting at one memory size. rows: method -> its printed entries."""

    setting: str
    point: str
    total_mb: float
    rows: dict[str, dict]


def memory_tables() -> list[MemoryTable]:
    """The tables in the paper's order: two performance-memory curves, then six settings.

    point is the table's megabytes on a curve, "aligned_to_der" else.
    """
    found = []
    for name, table in tables()["memory"].items():
        setting, _, point = name.replace("/curve/", "/").rpartition("/")
        found.append(MemoryTable(setting, point, table["total_mb"], table["methods"]))
    return found


@dataclasses.dataclass(frozen=True)
class Accuracy:
    """A method's accuracy in percent after each task of a setting, as the paper prints it.

    By which prediction rule is not said; average is the printed one.
    """

    per_task: tuple[float, ...]
    average: float


def accuracies(setting: str) -> dict[str, Accuracy]:
    """Method -> its accuracy in `DATASET/bXiY`, empty where the paper has none."""
    printed = tables()["accuracy"].get(setting, {})
    return {m: Accuracy(tuple(row["per_task"]), row["average"]) for m, row in printed.items()}


def settings() -> list[str]:
    """The settings `DATASET/bXiY` for which the paper prints accuracies, in its order."""
    return list(tables()["accuracy"])


def aligned(setting: str) -> MemoryTable | None:
    """The memory at which the accuracies of a setting are printed."""
    wanted = setting, "aligned_to_der"
    return next((t for t in memory_tables() if (t.setting, t.point) == wanted), None)


def curve_points(setting: str) -> list[float]:
    """The megabytes of a setting's performance-memory curve, empty where the paper has none."""
    return [t.total_mb for t in memory_tables() if t.setting == setting and t.point[0].isdigit()]


def measures(setting: str) -> dict[str, dict[str, float]]:
    """Method -> auc_a, auc_l, apm_s and apm_e of that curve, as the paper prints them."""
    printed = tables()["measures"]
    return {
        method: dict(zip(printed["columns"], row))
        for method, row in printed.get(setting, {}).items()
    }
