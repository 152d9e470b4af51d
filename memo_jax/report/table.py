"""A table: plain values, rounded only where they are shown; as CSV and as HTML."""

import csv
import dataclasses
import html
import pathlib

from memo_jax.report import words
from memo_jax.report.compare import Spread

Cell = str | int | float | Spread | None


@dataclasses.dataclass(frozen=True)
class Table:
    """Columns and rows of values; None is an empty cell. name: of its CSV file."""

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""

    def write(self, folder: pathlib.Path) -> None:
        """Writes `name`.csv, unrounded; deviations stand in a column of their own."""
        folder.mkdir(parents=True, exist_ok=True)
        spread = [any(isinstance(row[c], Spread) for row in self.rows) for c in self._places]
        header = []
        for column, split in zip(self.columns, spread):
            header += [column, f"{column}, deviation"] if split else [column]
        with (folder / f"{self.name}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(header)
            for row in self.rows:
                writer.writerow(
                    [x for cell, split in zip(row, spread) for x in _csv_cells(cell, split)]
                )

    @property
    def _places(self) -> range:
        return range(len(self.columns))

    def as_html(self) -> str:
        """A table element; columns of numbers are marked by the class `n`, empty ones left out."""
        kinds = {
            c: "" if any(isinstance(row[c], str) for row in self.rows) else 'class="n"'
            for c in self._places
            if any(row[c] is not None for row in self.rows)
        }
        head = "".join(f"<th {k}>{html.escape(self.columns[c])}</th>" for c, k in kinds.items())
        rows = (
            "".join(f"<td {k}>{html.escape(shown(row[c]))}</td>" for c, k in kinds.items())
            for row in self.rows
        )
        body = "".join(f"<tr>{cells}</tr>" for cells in rows)
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _csv_cells(cell: Cell, split: bool) -> list:
    if isinstance(cell, Spread):
        return [cell.mean, cell.deviation]
    return [cell, None] if split else [cell]


def shown(cell: Cell) -> str:
    """A cell as people read it: two digits, thousands apart, nothing for None."""
    if cell is None:
        return ""
    if isinstance(cell, float):
        return words.number(cell)
    return f"{cell:,}" if isinstance(cell, int) else str(cell)
