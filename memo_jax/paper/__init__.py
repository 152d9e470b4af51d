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
