"""What each kind of study is about: a figure over its own axis, a table where that says more."""

from collections.abc import Callable, Sequence

from memo_jax.report import figures, style, words
from memo_jax.report.compare import Line, Section, Spread, average, last
from memo_jax.report.drawings import Drawing, Sheet, curve
from memo_jax.report.figures import Axes
from memo_jax.report.load import RunSet
from memo_jax.report.table import Table
from memo_jax.report.tables import measures

AVERAGE, LAST = "average accuracy (%)", "last accuracy (%)"
Points = list[tuple[float, Line]]
Own = tuple[list[Drawing], list[Table]]


def own(sheet: Sheet, found: RunSet, parts: list[Section]) -> Own:
    """The figures and tables of a study's kind; none for runs that are no study."""
    return OWN[found.kind](sheet, parts) if found.kind and parts else ([], [])


def _series(parts: list[Section], label: Callable[[Line], str], x: Callable) -> dict[str, Points]:
    """label -> (x(section, line), line), rising."""
    found: dict[str, Points] = {}
    for section in parts:
        for line in section.lines:
            found.setdefault(label(line), []).append((x(section, line), line))
    return {name: sorted(points, key=lambda point: point[0]) for name, points in found.items()}


def _over(
    sheet: Sheet, name: str, title: str, caption: str, series: dict[str, Points], about: Axes, **how
):
    """A figure of average (or, by `pick`, another) accuracy over the x of series."""
    pick, joined = how.get("pick", average), how.get("joined", True)
    alone = len({points[0][1].method for points in series.values()}) == 1
    drawn, of_method = [], {}
    for label, points in series.items():
        x, lines = zip(*points)
        number = of_method[lines[0].method] = of_method.get(lines[0].method, -1) + 1
        look = style.look(lines[0].method, number, alone)
        drawn.append(curve(label, look, x, [line.spread(pick) for line in lines]))
    height = figures.curves_height(drawn)
    return sheet.draw(
        name, title, caption, height, lambda f: figures.curves(f, drawn, about, joined)
    )


def _bars(sheet: Sheet, section: Section, caption: str, named: Sequence[tuple[str, Line]]):
    """A figure of a bar of average accuracy for each named line of a section."""
    names, lines = zip(*named)
    spreads = [line.spread(average) for line in lines]
    parts = {"": ([s.mean for s in spreads], style.LOOKS["der"].colour, "")}
    deviations = [s.deviation for s in spreads]
    return sheet.draw(
        f"{words.slug(section.title)}-bars",
        section.title,
        caption,
        figures.bars_height(names, legend=False),
        lambda figure: figures.bars(figure, names, parts, AVERAGE, deviations),
    )


def _method(line: Line) -> str:
    return words.method(line.method)


def _of(line: Line, *names: str) -> str:
    """Method and some settings of a line in words."""
    return ", ".join([_method(line), *(words.setting(n, line.settings[n]) for n in names)])


def _curve(sheet: Sheet, parts: list[Section]) -> Own:
    drawn, tables = [], []
    for setting in dict.fromkeys(section.setting for section in parts):
        here = [section for section in parts if section.setting == setting]
        series = _series(here, _method, lambda section, line: section.total_mb)
        for what, pick in ((AVERAGE, average), (LAST, last)):
            word = what.split()[0]
            drawn.append(
                _over(
                    sheet,
                    f"{words.slug(setting)}-{word}-over-memory",
                    setting.replace("/", " "),
                    f"Performance over memory: {word} accuracy.",
                    series,
                    Axes("memory (MB)", what),
                    pick=pick,
                )
            )
        tables.append(measures(f"{sheet.prefix}-{words.slug(setting)}-measures", series, setting))
    return drawn, tables


def _freezing(sheet: Sheet, parts: list[Section]) -> Own:
    names = "method.train_trunk", "method.train_old_blocks"
    caption = "Average accuracy by what goes on learning after the base task."
    return [
        _bars(sheet, section, caption, [(_of(line, *names), line) for line in section.lines])
        for section in parts
    ], []


def _base_classes(sheet: Sheet, parts: list[Section]) -> Own:
    series = _series(
        parts,
        lambda line: _of(line, "method.train_trunk"),
        lambda section, line: line.runs[0].labels["base"],
    )
    caption, about = "Average accuracy over base classes.", Axes("base classes", AVERAGE)
    return [_over(sheet, "base-classes", "", caption, series, about)], []


def _class_orders(sheet: Sheet, parts: list[Section]) -> Own:
    """Each order's average, by method; the mean over orders is the sections' own curve."""
    return [], [_by_order(sheet, section) for section in parts]


def _by_order(sheet: Sheet, section: Section) -> Table:
    orders, by_line = set(), []
    for line in section.lines:
        reached: dict[int, list[float]] = {}
        for run in line.runs:
            order = run.settings["protocol.class_order_seed"]
            reached.setdefault(order, []).append(average(run.summary))
        orders |= reached.keys()
        by_line.append({order: Spread.of(values) for order, values in reached.items()})
    rows = [(str(order), *(found.get(order) for found in by_line)) for order in sorted(orders)]
    return Table(
        f"{sheet.prefix}-{words.slug(section.title)}-by-order",
        f"Average accuracy by class order, {section.title}",
        ("class order", *(line.label for line in section.lines)),
        tuple(rows),
    )


def _cuts(sheet: Sheet, parts: list[Section]) -> Own:
    def model_mb(line: Line) -> float:
        return line.runs[0].summary["memory"]["model_mb"]

    def name(line: Line) -> str:
        exemplars = line.runs[0].summary["memory"]["exemplars"]
        return f"{_of(line, 'backbone.cut')}: {exemplars:,} exemplars"

    caption = "Average accuracy by where the trunk ends, from the smallest model to the largest."
    return [
        _bars(sheet, section, caption, [(name(n), n) for n in sorted(section.lines, key=model_mb)])
        for section in parts
    ], []


def _rho(sheet: Sheet, parts: list[Section]) -> Own:
    return [
        _over(
            sheet,
            f"{words.slug(section.title)}-share",
            section.title,
            f"How {section.total_mb:g} MB are split between model and exemplars.",
            _series([section], _method, lambda _, line: line.runs[0].labels["share"]),
            Axes("share of the memory in exemplars", AVERAGE),
        )
        for section in parts
    ], []


def _settings(sheet: Sheet, parts: list[Section]) -> Own:
    names = [section.title for section in parts]
    series = _series(parts, _method, lambda section, line: names.index(section.title))
    about = Axes("", AVERAGE, ticks=dict(enumerate(names)))
    caption = "Average accuracy in every setting."
    return [_over(sheet, "settings", "", caption, series, about, joined=False)], []


OWN = {
    "settings": _settings,
    "curve": _curve,
    "freezing": _freezing,
    "base_classes": _base_classes,
    "class_orders": _class_orders,
    "cuts": _cuts,
    "rho": _rho,
}
"""Kind of a study -> what is drawn and tabled of it alone."""
