"""What the tables of a report hold."""

from collections.abc import Sequence

from memo_jax import metrics, paper
from memo_jax.clock import PHASES
from memo_jax.report import words
from memo_jax.report.compare import Line, Section, average, differences, last
from memo_jax.report.load import Run, RunSet
from memo_jax.report.table import Cell, Table


def runs(name: str, found: RunSet) -> Table:
    """Every run of a set and how far it is."""
    columns = ("run", "method", "setting", "state", "seed", "class order", "schedule", "tasks")
    columns += ("backbone", "MB", "devices", "commit")
    return Table(name, "Runs", columns, tuple(map(_run_row, found.runs)))


def _run_row(run: Run) -> tuple[Cell, ...]:
    first = (run.name, words.method(run.method), run.setting, run.state)
    settings = run.settings
    if not settings:
        return first + (None,) * 8
    return (
        *first,
        str(settings["seed"]),
        str(settings["protocol.class_order_seed"]),
        words.schedule(run),
        words.tasks(run) if run.finished else None,
        settings["backbone.name"],
        settings["memory.total_mb"],
        run.summary["devices"] if run.summary else None,
        words.commit(run),
    )


def printed(line: Line) -> tuple[float, float] | None:
    """The paper's average and last accuracy over the tasks that the line learned, if printed."""
    entry = paper.accuracies(line.runs[0].setting).get(line.method)
    if not entry:
        return None
    learned = entry.per_task[: len(line.classes_seen)]
    whole = len(learned) == len(entry.per_task)
    return entry.average if whole else sum(learned) / len(learned), learned[-1]


def finals(name: str, section: Section, with_paper: bool) -> Table:
    """What each line reached at the end, beside the paper."""
    columns = ("method", "runs", "average", "last", "average, nearest mean", "last, nearest mean")
    columns += ("forgetting", "exemplars", "MB")
    if with_paper:
        columns += ("paper's average", "difference", "paper's last", "difference of last")
        columns += ("not as in the paper",)
    rows = []
    for line in section.lines:
        near = [None, None]
        if line.has("nearest_mean"):
            near = [
                line.spread(lambda s: s["averages"]["nearest_mean"]),
                line.stages("nearest_mean")[-1],
            ]
        memory = line.runs[0].summary["memory"]
        ours = [line.spread(average), line.spread(last)]
        row = [line.label, len(line.runs), *ours, *near, line.spread(lambda s: s["forgetting"])]
        row += [memory["exemplars"], memory["total_mb"]]
        if with_paper:
            for mine, theirs in zip(ours, printed(line) or (None, None)):
                row += [theirs, None if theirs is None else mine.mean - theirs]
            row.append("; ".join(words.unlike_paper(line.runs[0]).values()))
        rows.append(tuple(row))
    note = "Accuracy in percent, by the head unless nearest mean is said; ± over runs."
    if with_paper:
        note += " The paper's numbers are over the same tasks; difference: ours less the paper's."
    return Table(name, "What was reached", columns, tuple(rows), note)


def stages(name: str, section: Section, rule: str, with_paper: bool) -> Table:
    """Accuracy after every task by one rule: ours, the paper's and the difference."""
    seen = max((line.classes_seen for line in section.lines), key=len)
    rows = []
    for line in section.lines:
        if not line.has(rule):
            continue
        ours = line.stages(rule)
        rows.append((line.label, "ours", *_filled(ours, len(seen))))
        entry = paper.accuracies(section.setting).get(line.method) if with_paper else None
        if entry:
            theirs = entry.per_task[: len(ours)]
            gaps = [mine.mean - value for mine, value in zip(ours, theirs)]
            rows.append((line.label, "paper", *_filled(theirs, len(seen))))
            rows.append((line.label, "difference", *_filled(gaps, len(seen))))
    columns = ("method", "classes seen", *map(str, seen))
    return Table(name, f"Accuracy after each task, by {words.RULES[rule]}", columns, tuple(rows))


def _filled(values: Sequence[Cell], length: int) -> list[Cell]:
    return [*values, *[None] * (length - len(values))]


def comparison(name: str, section: Section) -> Table:
    """Which differences between lines exceed the spread over runs."""
    columns = ("better", "than")
    for number in ("average", "last"):
        columns += (
            f"{number}: by",
            f"{number}: from",
            f"{number}: to",
            f"{number}: beyond the spread",
        )
    of_last = {(d.a.label, d.b.label): d for d in differences(section.lines, last)}
    rows = []
    for d in differences(section.lines, average):
        key = d.a.label, d.b.label
        sign, other = (1, of_last[key]) if key in of_last else (-1, of_last[key[::-1]])
        ends = other.interval and sorted(sign * end for end in other.interval)
        row = (*key, d.mean, *(d.interval or (None, None)), d.verdict)
        rows.append((*row, sign * other.mean, *(ends or (None, None)), other.verdict))
    return Table(name, "Differences and the spread over runs", columns, tuple(rows))


def seconds(name: str, section: Section) -> Table:
    """Running time by phase, mean over runs."""
    rows = []
    for line in section.lines:
        parts = [line.spread(lambda s, p=p: s["seconds"][p]).mean for p in ("total", *PHASES)]
        devices = ", ".join(sorted({run.summary["devices"] for run in line.runs}))
        base_task = "borrowed" if borrowed(line) else "learned"
        rows.append((line.label, *parts, devices, base_task))
    columns = ("method", "total", *PHASES, "devices", "base task")
    return Table(name, "Seconds by phase", columns, tuple(rows))


def borrowed(line: Line) -> bool:
    """Whether runs of a line started from another run's base task, whose time they do not count."""
    return any(run.summary["base_from"] for run in line.runs)


def measures(name: str, section_lines: dict[str, list[tuple[float, Line]]], setting: str) -> Table:
    """AUC and APM of each method over the points of a curve, beside the paper's.

    section_lines: method in print -> (megabytes, line), rising. A method that lacks a point of the
    study has no area, and the paper's numbers stand only beside the paper's own points.
    """
    points = sorted({mb for pairs in section_lines.values() for mb, _ in pairs})
    theirs = paper.measures(setting) if points == paper.curve_points(setting) else {}
    rows = []
    for label, pairs in section_lines.items():
        megabytes, lines = zip(*pairs)
        ours = dict.fromkeys(MEASURES)
        if list(megabytes) == points and len(points) > 1:
            for key, pick in (("auc_a", average), ("auc_l", last)):
                values = [line.spread(pick).mean for line in lines]
                ours[key] = metrics.area_under_curve(megabytes, values)
        for key, end in (("apm_s", 0), ("apm_e", -1)):
            if megabytes[end] == points[end]:
                reached = lines[end].spread(average).mean
                ours[key] = metrics.accuracy_per_megabyte(reached, megabytes[end])
        beside = theirs.get(lines[0].method, dict.fromkeys(MEASURES))
        cells = [cell for key in MEASURES for cell in (ours[key], beside[key])]
        rows.append((label, f"{len(pairs)} of {len(points)}", *cells))
    columns = ("method", "points")
    columns += tuple(c for title in MEASURES.values() for c in (title, f"paper's {title}"))
    lines = [line for pairs in section_lines.values() for _, line in pairs]
    unlike = [u for line in lines for key, u in _unlike(line) if key != "memory"] if theirs else []
    note = f" Not as in the paper: {'; '.join(dict.fromkeys(unlike))}." if unlike else ""
    return Table(name, "Performance over memory", columns, tuple(rows), NOTE_ON_MEASURES + note)


def _unlike(line: Line):
    return words.unlike_paper(line.runs[0]).items()


MEASURES = {"auc_a": "AUC-A", "auc_l": "AUC-L", "apm_s": "APM-S", "apm_e": "APM-E"}
NOTE_ON_MEASURES = (
    "AUC: area under average (A) or last accuracy (L) in percent over MB, by trapezoids, divided "
    "by 100. APM: average accuracy in percent per MB at the first (S) and the last point (E)."
)


def details(name: str, run: Run) -> Table:
    """Old, new, base and later classes after every task of a run."""
    summary = run.summary
    rows = [("all classes seen", *summary["accuracy"]["head"])]
    rows += [(title, *summary[f"{key}_class_accuracy"]) for key, title in PARTS.items()]
    rows.append(("top 5", *summary["top5"]))
    columns = ("accuracy by head (%)", *map(str, summary["classes_seen"]))
    return Table(name, "Old and new, base and later classes", columns, tuple(rows))


PARTS = {
    "old": "classes of earlier tasks",
    "new": "classes of the newest task",
    "base": "base classes",
    "later": "later classes",
}
"""Parts of the classes seen whose accuracy summary.json states -> in words."""


def matrix(name: str, run: Run) -> Table:
    """A run's accuracy after each task on the classes of each task."""
    values = run.summary["accuracy_matrix"]
    size = len(values)
    rows = tuple((b + 1, *_filled(row, size)) for b, row in enumerate(values))
    columns = ("after task", *(f"classes of task {t + 1}" for t in range(size)))
    return Table(name, "Accuracy by task", columns, rows)
