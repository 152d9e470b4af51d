"""The table of results for a README: every setting of the paper, and what was measured of it."""

import pathlib
from collections.abc import Iterator, Sequence

from memo_jax import paper
from memo_jax.errors import UserError
from memo_jax.report import tables, words
from memo_jax.report.compare import Line, average, last, sections
from memo_jax.report.load import RunSet

BEGIN, END = "<!-- results:begin -->", "<!-- results:end -->"
COLUMNS = ("setting", "method", "paper: average", "last", "ours: average", "last", "tasks")
COLUMNS += ("backbone", "MB", "schedule", "seeds", "devices", "commit")
NOTE = (
    "Accuracy in percent by the head; ± is one standard deviation over seeds. Empty: not measured, "
    "or not in the paper. The paper's numbers stand in a row only where stream, backbone and "
    "memory are the paper's, over the same tasks; its schedule is 170+170 epochs."
)


def results(sets: Sequence[RunSet]) -> str:
    """A markdown table: settings by methods, the paper's accuracy and that of finished runs."""
    rows = ["| " + " | ".join(cells) + " |" for cells in _rows(sets)]
    ruler = "|" + "|".join(":--" if name in LEFT else "--:" for name in COLUMNS) + "|"
    return "\n".join(["| " + " | ".join(COLUMNS) + " |", ruler, *rows, "", NOTE])


LEFT = {"setting", "method", "tasks", "backbone", "schedule", "seeds", "devices", "commit"}


def _rows(sets: Sequence[RunSet]) -> Iterator[tuple[str, ...]]:
    """The paper's settings in its order, then others; under each its methods, likewise."""
    measured: dict[str, dict[str, list[Line]]] = {}
    for found in sets:
        for section in sections(found):
            for line in section.lines:
                measured.setdefault(section.setting, {}).setdefault(line.method, []).append(line)
    for setting in dict.fromkeys([*paper.settings(), *measured]):
        here, theirs = measured.get(setting, {}), paper.accuracies(setting)
        for method in dict.fromkeys([*theirs, *here]):
            lines = here.get(method, [])
            first = (setting.replace("/", " "), words.method(method))
            if method in theirs and all(map(_unlike, lines)):
                entry = theirs[method]
                printed = entry.average, entry.per_task[-1]
                yield (*first, *map(words.number, printed), *[""] * (len(COLUMNS) - 4))
            for line in lines:
                yield (*first, *_cells(line))


def _unlike(line: Line) -> set[str]:
    """In what a line is not as in the paper, whatever its schedule."""
    return words.unlike_paper(line.runs[0]).keys() - {"schedule"}


def _cells(line: Line) -> tuple[str, ...]:
    run = line.runs[0]
    printed = None if _unlike(line) - {"tasks"} else tables.printed(line)
    return (
        *map(words.number, printed or (None, None)),
        str(line.spread(average)),
        str(line.spread(last)),
        words.tasks(run),
        run.settings["backbone.name"],
        words.number(run.settings["memory.total_mb"], 1),
        words.schedule(run),
        _seeds(line),
        ", ".join(sorted({each.summary["devices"] for each in line.runs})),
        ", ".join(sorted({words.commit(each) for each in line.runs})),
    )


def _seeds(line: Line) -> str:
    """Training seeds and, unless it is the paper's, class orders."""
    seeds, orders = (
        sorted({run.settings[name] for run in line.runs})
        for name in ("seed", "protocol.class_order_seed")
    )
    told = ", ".join(map(str, seeds))
    other = f"; class order {', '.join(map(str, orders))}"
    return told if orders == [words.PAPER_ORDER] else told + other


def put(path: pathlib.Path, table: str) -> None:
    """Replaces what stands between the two markers in a file. Raises UserError if they miss."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read ({error}); give --readme a text file") from error
    begin, end = text.find(BEGIN), text.find(END)
    if not 0 <= begin < end or text.count(BEGIN) > 1 or text.count(END) > 1:
        raise UserError(
            f"{path}: expected one line {BEGIN} and after it one line {END}; add them where the "
            f"table belongs"
        )
    text = f"{text[: begin + len(BEGIN)]}\n{table}\n{text[end:]}"
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"{path} cannot be written ({error}); change its permissions") from error
