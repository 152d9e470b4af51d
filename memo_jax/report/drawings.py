"""The figures of a section and of a run: what is drawn from which numbers."""

import dataclasses
import pathlib
from collections.abc import Callable, Sequence

from memo_jax import paper
from memo_jax.clock import PHASES
from memo_jax.report import figures, style, tables, words
from memo_jax.report.compare import Line, Section, Spread
from memo_jax.report.figures import Axes, Curve
from memo_jax.report.load import Run


@dataclasses.dataclass(frozen=True)
class Drawing:
    """A figure that lies in the report's folder as `name`.png and .svg, and as it goes inline."""

    name: str
    caption: str
    svg: str


@dataclasses.dataclass(frozen=True)
class Sheet:
    """Where figures go, and the beginning of their names."""

    folder: pathlib.Path
    prefix: str

    def draw(self, name: str, title: str, caption: str, height: float, paint: Callable) -> Drawing:
        """A figure of that height in inches, painted by `paint(figure)`."""
        name = f"{self.prefix}-{name}"
        with style.canvas(title, height) as figure:
            paint(figure)
            return Drawing(name, caption, style.save(figure, self.folder, name))


def look_of(lines: Sequence[Line], line: Line) -> style.Look:
    """The look of one of the lines of a figure."""
    alone = len({other.method for other in lines}) == 1
    return style.look(line.method, line.number, alone)


def curve(label: str, look: style.Look, x: Sequence[float], y: Sequence[Spread]) -> Curve:
    """A curve of means with their deviations over runs."""
    return Curve(label, look, x, [s.mean for s in y], [s.deviation for s in y])


def beside_paper(section: Section) -> bool:
    """Whether the paper prints accuracies of this setting and, on a curve, at this memory."""
    table = paper.aligned(section.setting)
    at = section.total_mb
    return bool(table) and (at is None or words.same_memory(at, table.total_mb))


def accuracy(sheet: Sheet, section: Section, rule: str) -> Drawing | None:
    """Accuracy after each task of every line, the paper's behind; None if no line has the rule."""
    lines = [line for line in section.lines if line.has(rule)]
    if not lines:
        return None
    drawn = [curve(n.label, look_of(lines, n), n.classes_seen, n.stages(rule)) for n in lines]
    theirs = paper.accuracies(section.setting) if beside_paper(section) else {}
    for line in lines:
        entry = theirs.pop(line.method, None)
        if entry:
            x = line.classes_seen
            look = style.look(line.method)
            drawn.append(Curve("", look, x, entry.per_task[: len(x)], faint=True))
    about = Axes("classes seen", "accuracy (%)")
    caption = f"Accuracy after each task by {words.RULES[rule]}."
    if any(len(line.runs) > 1 for line in lines):
        caption += " Bands: one standard deviation over runs."
    return sheet.draw(
        f"accuracy-{rule.replace('_', '-')}",
        f"{section.title}, by {words.RULES[rule]}",
        caption,
        figures.curves_height(drawn),
        lambda figure: figures.curves(figure, drawn, about),
    )


def seconds(sheet: Sheet, section: Section) -> Drawing:
    """Running time of every line by phase."""
    names = [line.label for line in section.lines]
    parts = {
        phase: (
            [line.spread(lambda s, p=phase: s["seconds"][p]).mean for line in section.lines],
            *style.PHASES[phase],
        )
        for phase in PHASES
    }
    caption = "Running time by phase, mean over runs."
    borrowed = {words.method(n.method): 0 for n in section.lines if tables.borrowed(n)}
    if borrowed:
        caption += f" Without the base task, which they borrowed: {', '.join(borrowed)}."
    return sheet.draw(
        "seconds",
        section.title,
        caption,
        figures.bars_height(names, legend=True),
        lambda figure: figures.bars(figure, names, parts, "seconds"),
    )


def of_run(sheet: Sheet, run: Run) -> list[Drawing]:
    """Parts of the classes over tasks, the accuracy matrix and the confusion matrix of a run."""
    summary = run.summary
    lines = []
    for (part, title), method in zip(tables.PARTS.items(), ("der", "memo", "wa", "icarl")):
        values = summary[f"{part}_class_accuracy"]
        known = [(x, y) for x, y in zip(summary["classes_seen"], values) if y is not None]
        if known:
            lines.append(Curve(title, style.look(method), *zip(*known)))
    about = Axes("classes seen", "accuracy (%)")
    drawn = [
        sheet.draw(
            "parts",
            run.name,
            "Accuracy by head on parts of the classes seen.",
            figures.curves_height(lines),
            lambda figure: figures.curves(figure, lines, about),
        ),
        sheet.draw(
            "matrix",
            run.name,
            "Accuracy by head on each task's classes after each task.",
            3.7,
            lambda figure: figures.accuracy_matrix(figure, summary["accuracy_matrix"]),
        ),
    ]
    counts = run.confusion()
    if counts is not None:
        drawn.append(
            sheet.draw(
                "confusion",
                run.name,
                "Predictions by head after the last task; lines part the tasks.",
                3.7,
                lambda figure: figures.confusion(figure, counts, summary["classes_seen"]),
            )
        )
    return drawn
