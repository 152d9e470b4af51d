"""The page: one HTML file that needs nothing else, in the reader's light or dark scheme."""

import html
import pathlib
from collections.abc import Sequence

from memo_jax.errors import UserError
from memo_jax.report import drawings, studies, tables, words
from memo_jax.report.compare import Difference, Section, average, differences, sections
from memo_jax.report.drawings import Drawing, Sheet
from memo_jax.report.load import Run, RunSet
from memo_jax.report.table import Table

OPEN_DETAILS = 6
"""Up to so many runs in a section their details lie open."""
UNFOLD = 'document.querySelectorAll("details").forEach(d => d.open = true)'
PRINT = f'addEventListener("beforeprint", () => {UNFOLD})'
INTRODUCTION = (
    "Class-incremental learning with memo_jax: after every task the classes seen so far are told "
    "apart without knowing the task. Accuracies in percent of the test images."
)
TERMS = {
    "average, last": "mean of the accuracies after each task; accuracy after the last task",
    "head, nearest mean": "the class by the linear head, or by the nearest mean of exemplars' "
    "features; where nothing is said, by the head",
    "forgetting": "mean over old tasks of their best accuracy before the last task less the last",
    "old, new; base, later": "classes of earlier tasks, of the newest task; of the first task, of "
    "all others",
    "MB": "2**20 bytes: a byte per channel and pixel of an exemplar, four per parameter of trunk "
    "and blocks",
    "±, bands": "one sample standard deviation over runs that differ in their seeds only (in a "
    "study of class orders: over orders too)",
    "beyond the spread": "Welch's 95 % interval of the difference of two means, from these "
    "deviations and numbers of runs, leaves out 0; each pair by itself. Of a single run the spread "
    "is unknown",
    "the paper": "Zhou et al., A Model or 603 Exemplars, ICLR 2023; thin dashed lines",
}


def write(sets: Sequence[RunSet], out: pathlib.Path) -> pathlib.Path:
    """Writes index.html, figures/ and tables/ into the folder `out`; returns the page's path."""
    for run in (run for found in sets for run in found.finished):
        run.confusion()  # a damaged one is said before anything is drawn
    try:
        out.mkdir(parents=True, exist_ok=True)
        (out / "index.html").touch()
    except OSError as error:
        raise UserError(f"{out} cannot be written to ({error}); choose another --out") from error
    title = sets[0].title if len(sets) == 1 and sets[0].kind else "memo_jax: runs compared"
    body = [f"<header><h1>{html.escape(title)}</h1>", _p(INTRODUCTION), _facts(sets), "</header>"]
    for found in sets:
        prefix = words.slug(found.folder.name) if found.folder else "runs"
        body.append(_set(found, prefix, out, heading=len(sets) > 1))
    body += ["<h2>How to read this</h2>", _list(TERMS)]
    style = (pathlib.Path(__file__).parent / "page.css").read_text()
    page = (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n<style>\n{style}</style>\n"
        f"<script>{PRINT}</script>\n</head>\n<body>\n" + "\n".join(body) + "\n</body>\n</html>\n"
    )
    path = out / "index.html"
    path.write_text(page, encoding="utf-8")
    return path


def _p(text: str, kind: str = "") -> str:
    return f'<p class="{kind}">{html.escape(text)}</p>' if kind else f"<p>{html.escape(text)}</p>"


def _list(terms: dict[str, str]) -> str:
    rows = (f"<dt>{html.escape(k)}</dt><dd>{html.escape(v)}</dd>" for k, v in terms.items())
    return f'<dl class="facts">{"".join(rows)}</dl>'


def _facts(sets: Sequence[RunSet]) -> str:
    """Whose runs these are: how far, on what, from which code."""
    runs = [run for found in sets for run in found.runs]
    begun = [run for run in runs if run.settings]
    states = [(run, run.state) for run in runs if not run.finished]
    waiting = [run.name for run, state in states if state == "not begun"]
    going = [f"{run.name}, {state}" for run, state in states if state != "not begun"]
    counts = f"{len(runs) - len(states)} finished"
    counts += f", {len(going)} in progress" if going else ""
    counts += f", {len(waiting)} not begun" if waiting else ""
    facts = {
        "runs": counts,
        "in progress": "; ".join(going),
        "not begun": ", ".join(waiting),
        "settings": _each(run.setting.replace("/", " ") for run in begun),
        "schedule": _each(words.schedule(run) for run in begun),
        "devices": _each(run.summary["devices"] for run in begun if run.summary),
        "commit": _each(words.commit(run) for run in begun),
    }
    return _list({name: value for name, value in facts.items() if value})


def _each(values) -> str:
    return ", ".join(value for value in dict.fromkeys(values) if value)


def _set(found: RunSet, prefix: str, out: pathlib.Path, heading: bool) -> str:
    """All about one set of runs."""
    sheet, parts = Sheet(out / "figures", prefix), sections(found)
    body = [f"<h2>{html.escape(found.title)}</h2>"] if heading else []
    if not parts:
        body.append(_p("No run is finished yet: there are no results to show."))
    drawn, own_tables = studies.own(sheet, found, parts)
    body += [_figures(drawn), *(_table(table, out) for table in own_tables)]
    if len(parts) > 1:
        links = (f'<a href="#{_anchor(prefix, s)}">{html.escape(s.title)}</a>' for s in parts)
        body.append(f"<nav>{' · '.join(links)}</nav>")
    body += [_section(section, prefix, out) for section in parts]
    body.append(_table(tables.runs(f"{prefix}-runs", found), out))
    return "\n".join(body)


def _anchor(prefix: str, section: Section) -> str:
    return f"{prefix}-{words.slug(section.title)}"


def _section(section: Section, prefix: str, out: pathlib.Path) -> str:
    """Results of one setting: what was reached, differences, time, and every run by itself."""
    anchor = _anchor(prefix, section)
    sheet, with_paper = Sheet(out / "figures", anchor), drawings.beside_paper(section)
    drawn = [drawings.accuracy(sheet, section, rule) for rule in words.RULES]
    drawn.append(drawings.seconds(sheet, section))
    body = [f'<h3 id="{anchor}">{html.escape(section.title)}</h3>', *_warnings(section)]
    body.append(_figures([drawing for drawing in drawn if drawing]))
    body.append(_table(tables.finals(f"{anchor}-results", section, with_paper), out))
    if len(section.lines) > 1:
        body.append(
            _table(tables.comparison(f"{anchor}-differences", section), out, _said(section))
        )
    for rule in words.RULES:
        if any(line.has(rule) for line in section.lines):
            name = f"{anchor}-stages-{words.slug(rule)}"
            body.append(_table(tables.stages(name, section, rule, with_paper), out))
    body.append(_table(tables.seconds(f"{anchor}-seconds", section), out))
    runs = [run for line in section.lines for run in line.runs]
    body.append("<h4>Run by run</h4>")
    body += [_run(run, prefix, out, len(runs) <= OPEN_DETAILS) for run in runs]
    return "\n".join(body)


def _warnings(section: Section) -> list[str]:
    """A line for every setting that makes the comparison an unequal one."""
    found = []
    for name, by_value in section.unequal.items():
        values = "; ".join(f"{value} ({', '.join(labels)})" for value, labels in by_value.items())
        text = f"Unequal terms: {name} is {values}. Differences between these may come from there."
        found.append(_p(text, "warning"))
    return found


def _said(section: Section) -> str:
    """Which differences in average accuracy exceed the spread, in a sentence or two."""
    told = {"yes": [], "no": []}
    for difference in differences(section.lines, average):
        if difference.interval:
            told[difference.verdict].append(_told(difference))
    said = {
        "Beyond the spread over runs, in average accuracy": "; ".join(told["yes"]),
        "Within it": "; ".join(told["no"]),
        "A single run, so that its spread is unknown": "; ".join(
            line.label for line in section.lines if len(line.runs) == 1
        ),
    }
    return " ".join(f"{what}: {pairs}." for what, pairs in said.items() if pairs)


def _told(difference: Difference) -> str:
    low, high = map(words.number, difference.interval)
    pair = f"{difference.a.label} above {difference.b.label}"
    return f"{pair} by {words.number(difference.mean)} ({low} to {high})"


def _run(run: Run, prefix: str, out: pathlib.Path, is_open: bool) -> str:
    name = f"{prefix}-{words.slug(run.name)}"
    body = [
        f"<details{' open' if is_open else ''}><summary>{html.escape(run.name)}: "
        f"{html.escape(words.method(run.method))}, average "
        f"{words.number(average(run.summary))}</summary>",
        _figures(drawings.of_run(Sheet(out / "figures", name), run)),
        _table(tables.details(f"{name}-parts", run), out),
        _table(tables.matrix(f"{name}-matrix", run), out),
        "</details>",
    ]
    return "\n".join(body)


def _figures(drawn: Sequence[Drawing]) -> str:
    if not drawn:
        return ""
    return f'<div class="figures">{"".join(map(_figure, drawn))}</div>'


def _figure(drawing: Drawing) -> str:
    svg = drawing.svg.replace(
        "<svg", f'<svg role="img" aria-label="{html.escape(drawing.caption)}"', 1
    )
    links = " · ".join(
        f'<a href="figures/{drawing.name}.{kind}">{kind.upper()}</a>' for kind in ("png", "svg")
    )
    caption = f"{html.escape(drawing.caption)} <span>{links}</span>"
    return f"<figure>{svg}<figcaption>{caption}</figcaption></figure>"


def _table(table: Table, out: pathlib.Path, said: str = "") -> str:
    """A table with its CSV written beside the page, and what is said of it before and after."""
    table.write(out / "tables")
    parts = [f"<h4>{html.escape(table.title)}</h4>", _p(said) if said else ""]
    parts.append(f'<div class="scroll">{table.as_html()}</div>')
    note = html.escape(table.note)
    parts.append(f'<p class="soft">{note} <a href="tables/{table.name}.csv">CSV</a></p>')
    return "\n".join(part for part in parts if part)
