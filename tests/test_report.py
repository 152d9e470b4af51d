"""python -m memo_jax report: the page, beside what lies in the folders of real and made runs."""

import html.parser
import json
import pathlib
import re
import statistics
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from report_runs import make_run, only_section, report, rows_of, write_run

from memo_jax.report.table import Table


@pytest.fixture(scope="module")
def real(launch, tmp_path_factory) -> pathlib.Path:
    """A real run's folder: two of three tasks of digits, MEMO."""
    workdir = tmp_path_factory.mktemp("real") / "run"
    done = launch(
        "--config=configs/digits_b0i2.py",
        "--config.backbone.name=convnet2",
        "--config.protocol.increment=4",
        "--config.protocol.stop_after=2",
        "--config.schedule.base_epochs=1",
        "--config.schedule.base_milestones=()",
        "--config.schedule.later_epochs=1",
        "--config.schedule.later_milestones=()",
        f"--workdir={workdir}",
    )
    assert done.returncode == 0, done.stderr
    return workdir


@pytest.fixture(scope="module")
def out(real, tmp_path_factory) -> pathlib.Path:
    """Reports: on the real run; on two finished runs, one in progress, one that has begun."""
    folder = tmp_path_factory.mktemp("out")
    run = make_run(folder / "made")
    write_run(folder / "several/memo <b>", run)  # what HTML would take for a tag
    write_run(folder / "several/der", run, method__name="der")
    write_run(folder / "several/wa", run, [99.0, 98.0, 97.0], done=2, method__name="wa")
    young = write_run(folder / "several/icarl", run, method__name="icarl")
    (young / "summary.json").unlink()
    assert report(folder / "several", "--out", folder / "page") == 0
    assert report(real, "--out", folder / "real") == 0
    return folder


class Reader(html.parser.HTMLParser):
    """Expects every element to be closed in order; collects attributes and text."""

    VOID = ("meta", "br", "link", "img")

    def __init__(self, text: str):
        super().__init__()
        self.open, self.attributes, self.tags, self.text = [], [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)

    def values(self, *names: str) -> list[str]:
        return [value for name, value in self.attributes if name in names]


def test_the_page_is_whole_and_needs_nothing_from_elsewhere(out):
    page = (out / "page" / "index.html").read_text()
    reader = Reader(page)
    assert not reader.open
    assert not {"link", "img", "iframe", "object", "embed"} & set(reader.tags)
    assert not reader.values("src") and "@import" not in page and "url(http" not in page
    ids = reader.values("id")
    assert len(ids) == len(set(ids)), "elements of two figures share an id"
    for target in reader.values("href", "xlink:href"):
        if target.startswith("#"):
            assert target[1:] in ids
        elif not target.startswith("data:image/png;base64,"):
            assert (out / "page" / target).stat().st_size > 20, target
    for target in re.findall(r"url\(#([^)]*)\)", page):
        assert target in ids


def test_every_figure_is_on_the_page_and_beside_it_as_png_and_as_svg(out):
    page = (out / "page" / "index.html").read_text()
    inline = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    figures = sorted((out / "page" / "figures").glob("*.svg"))
    # Two rules and the seconds, then three of each finished run.
    assert len(inline) == len(figures) == 3 + 3 * 2
    for text in [*inline, *(path.read_text() for path in figures)]:
        root = ElementTree.fromstring(text)
        assert root.tag == "{http://www.w3.org/2000/svg}svg" and root.get("viewBox")
    for path in figures:
        assert path.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    assert all("var(--ink)" in text and "#1a1b1c" not in text for text in inline)


def test_of_a_real_run_it_states_what_its_files_say(out, real):
    summary = json.loads((real / "summary.json").read_text())
    (row,) = rows_of(out / "real", "runs-digits-b0i4-results")
    with np.load(real / "confusion" / "task_001.npz") as file:
        matrix = file["head"]
    assert float(row["last"]) == pytest.approx(100 * np.trace(matrix) / matrix.sum())
    assert float(row["average"]) == pytest.approx(statistics.fmean(summary["accuracy"]["head"]))
    assert float(row["forgetting"]) == summary["forgetting"]
    assert int(row["exemplars"]) == summary["memory"]["exemplars"]
    parts = {r["accuracy by head (%)"]: r for r in rows_of(out / "real", "runs-run-parts")}
    old = 100 * np.trace(matrix[:4, :4]) / matrix[:4].sum()
    new = 100 * np.trace(matrix[4:, 4:]) / matrix[4:].sum()
    assert float(parts["classes of earlier tasks"]["8"]) == pytest.approx(old)
    assert float(parts["classes of the newest task"]["8"]) == pytest.approx(new)
    rows = rows_of(out / "real", "runs-run-matrix")
    assert [float(rows[1][f"classes of task {t}"]) for t in (1, 2)] == pytest.approx([old, new])
    (seconds,) = rows_of(out / "real", "runs-digits-b0i4-seconds")
    assert float(seconds["total"]) == pytest.approx(summary["seconds"]["total"])
    text = " ".join(Reader((out / "real" / "index.html").read_text()).text)
    config = json.loads((real / "config.json").read_text())
    for fact in ("1 finished", "1+1 epochs", config["devices"], (config["commit"] or "")[:10]):
        assert fact in text
    assert f"{summary['average_accuracy']:.2f}" in text and "first 2 tasks" in text


def test_confusion_is_shown_as_counted(real):
    section = only_section(real)
    with np.load(real / "confusion" / "task_001.npz") as file:
        np.testing.assert_array_equal(section.lines[0].runs[0].confusion(), file["head"])


def test_what_is_in_progress_is_said_and_is_no_result(out):
    text = " ".join(Reader((out / "page" / "index.html").read_text()).text)
    assert "2 finished, 2 in progress" in text
    assert "wa, in progress: 2 of 3 tasks" in text
    assert "icarl, in progress: no task learned yet" in text
    assert "98.00" not in text and "98.50" not in text
    rows = rows_of(out / "page", "runs-digits-b0i4-results")
    assert [row["method"] for row in rows] == ["MEMO", "DER"]


def test_columns_that_hold_nothing_are_in_the_csv_only(tmp_path):
    table = Table("t", "T", ("full", "empty", "some"), ((1, None, None), (2.5, None, "x")))
    shown = table.as_html()
    assert re.findall(r"<th ?[^>]*>(\w+)</th>", shown) == ["full", "some"]
    assert re.findall(r"<td ?[^>]*>([^<]*)</td>", shown) == ["1", "", "2.50", "x"]
    table.write(tmp_path)
    assert (tmp_path / "t.csv").read_text().splitlines() == ["full,empty,some", "1,,", "2.5,,x"]
