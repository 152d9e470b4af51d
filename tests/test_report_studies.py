"""Reports on studies, each kind in its own way, and what stands beside the paper's numbers."""

import pathlib
import xml.etree.ElementTree as ElementTree

import pytest
from report_runs import as_in_the_paper, make_run, of_cifar, only_section, write_run, write_study

from memo_jax import paper
from memo_jax.report import compare, drawings, load, studies, tables


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> pathlib.Path:
    """The folder of a run of MEMO, two of three tasks of digits."""
    return make_run(tmp_path_factory.mktemp("made") / "run")


CURVE = {7.6: 50.0, 12.4: 58.0, 16.0: 60.0, 19.8: 62.0, 23.5: 65.0}
"""Megabytes of the paper's curve -> an average accuracy."""


@pytest.fixture(scope="module")
def curve(run, tmp_path_factory) -> pathlib.Path:
    """A curve study of two methods with two seeds; DER has no run at the first point."""
    folder, runs = tmp_path_factory.mktemp("curve"), []
    for method in ("memo", "der"):
        for mb, average in CURVE.items():
            for seed in (1, 2):
                name = f"{method}-{mb}-{seed}"
                labels = {"total_mb": mb, "seed": seed}
                runs.append((name, "cifar100/b0i10", method, labels))
                if (method, mb) != ("der", 7.6):
                    accuracy = [average + seed - 0.5, average + seed - 2.5]
                    own = {"method__name": method, "seed": seed}
                    of_cifar(folder / name, run, accuracy, mb + 0.02, **own)
    return write_study(folder, "curve", runs)


def test_area_and_accuracy_per_megabyte_beside_the_papers(curve, tmp_path):
    (found,) = load.collect([curve])
    drawn, (table,) = studies.own(drawings.Sheet(tmp_path, "x"), found, compare.sections(found))
    assert [d.name for d in drawn] == [
        "x-cifar100-b0i10-average-over-memory",
        "x-cifar100-b0i10-last-over-memory",
    ]
    rows = {row[0]: dict(zip(table.columns, row)) for row in table.rows}
    memo, der = rows["MEMO"], rows["DER"]
    # Strips 4.8, 3.6, 3.8 and 3.7 MB wide.
    area = 4.8 * 54 + 3.6 * 59 + 3.8 * 61 + 3.7 * 63.5
    assert memo["AUC-A"] == pytest.approx(area / 100)
    assert memo["AUC-L"] == pytest.approx((area - 15.9) / 100)
    assert memo["APM-S"] == pytest.approx(50 / 7.6) and memo["APM-E"] == pytest.approx(65 / 23.5)
    assert memo["points"] == "5 of 5" and der["points"] == "4 of 5"
    assert der["AUC-A"] is der["AUC-L"] is None, "an area over fewer points does not compare"
    assert der["APM-S"] is None and der["APM-E"] == memo["APM-E"]
    printed = paper.tables()["measures"]["cifar100/b0i10"]["memo"]
    assert [memo[f"paper's {m}"] for m in ("AUC-A", "AUC-L", "APM-S", "APM-E")] == printed
    assert "first 2 of 10 tasks" in table.note and "1+1 epochs" in table.note


def test_the_papers_accuracies_stand_at_their_own_memory_only(curve):
    found = load.collect([curve])[0]
    beside = {s.total_mb: drawings.beside_paper(s) for s in compare.sections(found)}
    assert beside == {mb: mb == 23.5 for mb in CURVE}


def test_class_orders_are_pooled_in_their_study_and_there_alone(run, tmp_path):
    reached = {10: 60.0, 20: 70.0, 30: 80.0}
    runs = []
    for order, accuracy in reached.items():
        name = f"memo-{order}"
        runs.append((name, "digits/b0i4", "memo", {"class_order": order}))
        write_run(tmp_path / name, run, [accuracy] * 2, protocol__class_order_seed=order)
    assert len(only_section(tmp_path).lines) == 3
    write_study(tmp_path, "class_orders", runs)
    (line,) = only_section(tmp_path).lines
    assert line.spread(compare.last) == compare.Spread(70.0, 10.0)
    found = load.collect([tmp_path])[0]
    _, (table,) = studies.own(drawings.Sheet(tmp_path, "x"), found, compare.sections(found))
    assert [(row[0], row[1].mean) for row in table.rows] == [
        (str(order), accuracy) for order, accuracy in reached.items()
    ]


KINDS = {
    "freezing": ("bars", [({}, {"method__train_trunk": t}) for t in (True, False)]),
    "cuts": ("bars", [({}, {"backbone__cut": cut}) for cut in ("memo", "memo-2")]),
    "base_classes": (
        "base-classes",
        [({"base": b}, {"protocol__base": b, "protocol__increment": 1}) for b in (2, 4)],
    ),
    "rho": (
        "share",
        [({"share": s, "total_mb": 2.0}, {"backbone__name": b}) for s, b in ((0.5, "a"), (1, "b"))],
    ),
    "settings": ("settings", [({}, {"dataset__name": d}) for d in ("digits", "cifar100")]),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_study_has_a_figure_of_its_own(run, tmp_path, kind):
    name, cases = KINDS[kind]
    runs = []
    for number, (labels, settings) in enumerate(cases):
        runs.append((f"run{number}", "digits/b0i4", "memo", labels))
        write_run(tmp_path / f"run{number}", run, [80.0, 60.0 + number], **settings)
    (found,) = load.collect([write_study(tmp_path, kind, runs)])
    parts = compare.sections(found)
    assert not any(section.unequal for section in parts), "what a study varies is no blemish"
    drawn, _ = studies.own(drawings.Sheet(tmp_path / "figures", "x"), found, parts)
    assert [d.name.endswith(name) for d in drawn] == [True]
    assert ElementTree.fromstring(drawn[0].svg) is not None


def test_every_kind_is_known_to_both_sides():
    assert set(KINDS) | {"curve", "class_orders"} == set(load.KINDS) == set(studies.OWN)


def test_a_run_under_the_papers_conditions_differs_from_it_in_its_numbers_only(run, tmp_path):
    section = only_section(as_in_the_paper(tmp_path / "a", run))
    table = tables.finals("x", section, with_paper=True)
    row = dict(zip(table.columns, table.rows[0]))
    assert row["paper's average"] == 72.37 and row["paper's last"] == 61.98
    # The printed average is rounded.
    assert row["difference"] == pytest.approx(-1, abs=0.01)
    assert row["difference of last"] == pytest.approx(-1)
    assert row["not as in the paper"] == ""
    stages = tables.stages("x", section, "head", with_paper=True).rows
    assert [row[1] for row in stages] == ["ours", "paper", "difference"]
    assert list(stages[2][2:]) == pytest.approx([-1.0] * 10)


@pytest.mark.parametrize(
    "change, said",
    [
        ({"schedule__batch_size": 64}, "170+170 epochs (paper), batch 64"),
        ({"backbone__name": "resnet20"}, "resnet20 for resnet32"),
        ({"backbone__cut": "memo-2"}, "cut memo-2"),
        ({"protocol__class_order_seed": 10}, "class order 10"),
        ({"protocol__stop_after": 10}, ""),
    ],
)
def test_what_is_not_as_in_the_paper_is_said(run, tmp_path, change, said):
    section = only_section(as_in_the_paper(tmp_path / "a", run, **change))
    assert tables.finals("x", section, with_paper=True).rows[0][-1] == said


def test_less_memory_a_short_schedule_and_a_part_of_the_stream_are_said(run, tmp_path):
    settings = {"protocol__stop_after": 2, "method__name": "memo"}
    section = only_section(of_cifar(tmp_path / "a", run, [80.0, 60.0], 12.42, **settings))
    table = tables.finals("x", section, with_paper=True)
    row = dict(zip(table.columns, table.rows[0]))
    assert row["paper's average"] == pytest.approx((90.4 + 80.3) / 2)
    assert row["paper's last"] == 80.3
    # At 12.4 MB the paper has ResNet14.
    assert row["not as in the paper"] == (
        "resnet32 for resnet14; 12.4 MB for 23.5 MB; 1+1 epochs, batch 64; first 2 of 10 tasks"
    )
