"""Reports over seeds: means, deviations, what exceeds them, and what may not be compared."""

import json
import pathlib
import statistics

import pytest
from report_runs import make_run, only_section, rows_of, write_run, write_study
from scipy import stats

from memo_jax.report import compare, load, tables

SEEDS = {"memo": [[90.0, 70.0], [92.0, 71.0], [91.0, 75.0]], "der": [[96.0, 60.0], [98.0, 62.0]]}
"""Method -> accuracy after each of two tasks, a list for each seed."""


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> pathlib.Path:
    """The folder of a run of MEMO, two of three tasks of digits."""
    return make_run(tmp_path_factory.mktemp("made") / "run")


@pytest.fixture(scope="module")
def seeds(run, tmp_path_factory) -> pathlib.Path:
    """Five runs of two methods."""
    folder = tmp_path_factory.mktemp("seeds")
    for method, values in SEEDS.items():
        for seed, accuracy in enumerate(values, 1):
            name = f"{method}-{seed}"
            write_run(folder / name, run, accuracy, method__name=method, seed=seed)
    return folder


def test_means_and_deviations_over_seeds(seeds, tmp_path):
    section = only_section(seeds)
    tables.finals("results", section, with_paper=False).write(tmp_path / "tables")
    rows = {row["method"]: row for row in rows_of(tmp_path, "results")}
    assert list(rows) == ["MEMO", "DER"]
    for method, values in SEEDS.items():
        row = rows[method.upper()]
        averages, lasts = [statistics.fmean(v) for v in values], [v[-1] for v in values]
        assert int(row["runs"]) == len(values)
        for name, each in (("average", averages), ("last", lasts)):
            assert float(row[name]) == pytest.approx(statistics.fmean(each))
            assert float(row[f"{name}, deviation"]) == pytest.approx(statistics.stdev(each))
    stages = tables.stages("stages", section, "nearest_mean", with_paper=False)
    assert [row[-1].mean for row in stages.rows] == pytest.approx([73.0, 62.0])
    assert "72.00 ± 2.65" in tables.finals("results", section, with_paper=False).as_html()


def test_what_is_planned_and_not_begun_is_no_result(tmp_path):
    planned = [(name, "digits/b0i4", "memo", {}) for name in ("memo-1", "memo-9")]
    (found,) = load.collect([write_study(tmp_path, "settings", planned)])
    assert [run.state for run in found.runs] == ["not begun"] * 2 and not compare.sections(found)


def test_a_difference_is_held_against_the_spread_by_welch_as_scipy_has_it(seeds, tmp_path):
    tables.comparison("differences", only_section(seeds)).write(tmp_path / "tables")
    (row,) = rows_of(tmp_path, "differences")
    assert (row["better"], row["than"]) == ("MEMO", "DER")
    for name, pick in (("average", statistics.fmean), ("last", lambda v: v[-1])):
        ours, theirs = ([pick(v) for v in SEEDS[m]] for m in ("memo", "der"))
        expected = stats.ttest_ind(ours, theirs, equal_var=False).confidence_interval(0.95)
        found = [float(row[f"{name}: {end}"]) for end in ("from", "to")]
        assert found == pytest.approx(list(expected))
        assert row[f"{name}: beyond the spread"] == ("yes" if expected.low > 0 else "no")
    assert row["last: beyond the spread"] == "yes" and row["average: beyond the spread"] == "no"


def test_of_a_single_run_the_spread_is_unknown(seeds):
    section = only_section(seeds / "memo-1", seeds / "der-1", seeds / "der-2")
    (difference,) = compare.differences(section.lines, compare.last)
    assert difference.mean == pytest.approx(70 - 61) and difference.interval is None
    assert difference.verdict.startswith("unknown")
    assert section.lines[0].spread(compare.last).deviation is None


def test_who_leads_on_average_may_be_behind_at_last(run, tmp_path):
    for seed, more in enumerate([0.0, 2.0]):
        wa = {"method__name": "wa", "seed": seed}
        write_run(tmp_path / f"memo{seed}", run, [90 + more, 50 + more], seed=seed)
        write_run(tmp_path / f"wa{seed}", run, [60 + more, 60 + more / 2], **wa)
    table = tables.comparison("differences", only_section(tmp_path))
    row = dict(zip(table.columns, table.rows[0]))
    assert (row["better"], row["than"]) == ("MEMO", "WA")
    assert row["average: by"] == pytest.approx(10.25) and row["last: by"] == pytest.approx(-9.5)
    expected = stats.ttest_ind([50, 52], [60, 61], equal_var=False).confidence_interval(0.95)
    assert [row["last: from"], row["last: to"]] == pytest.approx(list(expected))


def test_equal_runs_differ_by_nothing_or_by_all():
    assert compare.interval([5.0, 5.0], [3.0, 3.0]) == (2.0, 2.0)


@pytest.mark.parametrize(
    "change, named",
    [
        ({"schedule__later": {"epochs": 2}}, "schedule.later.epochs"),
        ({"memory__total_mb": 3.0}, "memory.total_mb"),
        ({"backbone__name": "resnet14"}, "backbone.name"),
        ({"protocol__class_order_seed": 10}, "protocol.class_order_seed"),
        ({"precision": "bfloat16"}, "precision"),
    ],
)
def test_unequal_terms_are_named(run, tmp_path, change, named):
    write_run(tmp_path / "a", run)
    if "schedule__later" in change:
        later = json.loads((run / "config.json").read_text())["resolved"]["schedule"]["later"]
        change = {"schedule__later": later | change["schedule__later"]}
    write_run(tmp_path / "b", run, method__name="der", **change)
    section = only_section(tmp_path)
    assert list(section.unequal) == [named]
    assert sorted(section.unequal[named].values()) == [["DER"], ["MEMO"]]


def test_equal_terms_are_not_and_another_setting_makes_another_line(run, tmp_path):
    total = json.loads((run / "config.json").read_text())["resolved"]["memory"]["total_mb"]
    write_run(tmp_path / "a", run)
    write_run(tmp_path / "b", run, method__name="der", memory__total_mb=total * 1.005, seed=3)
    assert not only_section(tmp_path).unequal
    write_run(tmp_path / "c", run, backbone__cut="memo-2", seed=2)
    assert [line.label for line in only_section(tmp_path).lines] == [
        "MEMO, cut memo",
        "MEMO, cut memo-2",
        "DER",
    ]
