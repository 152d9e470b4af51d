"""Reports: the table for a README, and one line for everything that cannot be reported."""

import json
import pathlib

import pytest
from report_runs import as_in_the_paper, make_run, of_cifar, report, write_run, write_study

from memo_jax import paper
from memo_jax.report import compare, load

METHODS = ("replay", "icarl", "wa", "der", "memo")


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> pathlib.Path:
    """The folder of a run of MEMO, two of three tasks of digits."""
    return make_run(tmp_path_factory.mktemp("made") / "run")


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_markdown_has_every_setting_and_method_of_the_paper(run, capsys):
    assert report(run, "--markdown") == 0
    lines = capsys.readouterr().out.splitlines()
    rows = [cells(line) for line in lines if line.startswith("|")]
    header, body = rows[0], rows[2:]
    assert all(len(row) == len(header) for row in rows)
    printed = {(s, m) for s in paper.tables()["accuracy"] for m in METHODS}
    assert len(body) == len(printed) + 1 == 31
    entry = ["cifar100 b0i10", "MEMO", "72.37", "61.98"]
    assert [*entry, *[""] * (len(header) - 4)] in body
    summary = json.loads((run / "summary.json").read_text())
    own = body[-1]
    assert own[:4] == ["digits b0i4", "MEMO", "", ""]
    assert own[4:6] == [f"{summary[k]:.2f}" for k in ("average_accuracy", "last_accuracy")]
    assert own[6:] == [
        "first 2 tasks",
        "resnet8",
        f"{summary['memory']['total_mb']:.1f}",
        "1+1 epochs, batch 64",
        "1",
        summary["devices"],
        own[-1],
    ]


def test_in_markdown_another_schedule_is_seen_and_other_memory_has_its_own_row(
    run, tmp_path, capsys
):
    as_in_the_paper(tmp_path / "as", run)
    part = {"protocol__stop_after": 2}
    of_cifar(tmp_path / "part", run, [80.0, 60.0], 23.5, **part)
    of_cifar(tmp_path / "less", run, [70.0, 50.0], 12.4, backbone__name="resnet14", **part)
    of_cifar(tmp_path / "der", run, [80.0, 60.0], 23.5, method__name="der", **part)
    assert report(tmp_path, "--markdown") == 0
    out = capsys.readouterr().out
    rows = [cells(line) for line in out.splitlines() if line.startswith("| cifar100 b0i10 | MEMO")]
    assert {tuple(row[2:10]) for row in rows} == {
        ("72.37", "61.98", "71.37", "60.98", "10 tasks", "resnet32", "23.5", PAPERS),
        ("85.35", "80.30", "70.00", "60.00", "first 2 of 10 tasks", "resnet32", "23.5", OURS),
        ("", "", "60.00", "50.00", "first 2 of 10 tasks", "resnet14", "12.4", OURS),
    }
    der = [cells(line) for line in out.splitlines() if line.startswith("| cifar100 b0i10 | DER")]
    assert [row[2:6] for row in der] == [["71.47", "60.26", "", ""], [*DER, "70.00", "60.00"]]


DER = ["85.47", "80.55"]  # (90.4 + 80.55) / 2 is 85.475
PAPERS, OURS = "170+170 epochs (paper)", "1+1 epochs, batch 64"


def test_a_readme_is_changed_between_its_markers_alone(run, tmp_path, capsys):
    readme = tmp_path / "README.md"
    begin, end = "<!-- results:begin -->", "<!-- results:end -->"
    readme.write_text(f"# Title\n{begin}\nold\n{end}\nafter ü\n", encoding="utf-8")
    for _ in range(2):
        assert report(run, "--readme", readme) == 0
        before, rest = readme.read_text(encoding="utf-8").split(begin)
        table, after = rest.split(end)
        assert before == "# Title\n" and after == "\nafter ü\n"
        assert "old" not in table and "| digits b0i4 | MEMO |" in table
    capsys.readouterr()
    for text in ("no markers", f"{end}\n{begin}", f"{begin}\n{begin}\n{end}"):
        readme.write_text(text)
        assert report(run, "--readme", readme) == 2
        assert_one_line(capsys, str(readme), "results:begin")
        assert readme.read_text() == text
    assert report(run, "--readme", tmp_path / "none.md") == 2
    assert_one_line(capsys, "none.md")


def assert_one_line(capsys, *said: str) -> None:
    captured = capsys.readouterr()
    assert captured.err.startswith("error: ") and captured.err.count("\n") == 1, captured.err
    assert captured.out == ""
    for words in said:
        assert words in captured.err


def edit(path: pathlib.Path, **changes) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def without(path: pathlib.Path, *keys: str) -> None:
    content = json.loads(path.read_text())
    path.write_text(json.dumps({k: v for k, v in content.items() if k not in keys}))


BROKEN = {
    "older": (lambda f: without(f / "summary.json", "base_from", "top5"), ["base_from, top5"]),
    "torn": (lambda f: (f / "summary.json").write_text('{"method": '), ["summary.json"]),
    "list": (lambda f: (f / "summary.json").write_text("[1]"), ["summary.json", "object"]),
    "short": (lambda f: edit(f / "summary.json", top5=[1.0]), ["damaged", "top5"]),
    "words": (lambda f: edit(f / "summary.json", forgetting="low"), ["damaged", "'low'"]),
    "hollow": (lambda f: edit(f / "summary.json", memory={}), ["damaged", "exemplars"]),
    "headless": (lambda f: edit(f / "summary.json", accuracy={}), ["damaged", "head"]),
    "no config": (lambda f: (f / "config.json").unlink(), ["config.json"]),
    "other config": (lambda f: (f / "config.json").write_text("{}"), ["config.json", "commit"]),
    "confusion": (lambda f: (f / "confusion/task_001.npz").write_bytes(b"x"), ["task_001.npz"]),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_run_is_one_line(run, tmp_path, capsys, case):
    spoil, said = BROKEN[case]
    folder = write_run(tmp_path / "run", run)
    spoil(folder)
    assert report(folder, "--out", tmp_path / "out") == 2
    assert_one_line(capsys, str(folder), *said)
    assert not (tmp_path / "out").exists(), "something was drawn already"


def test_where_there_is_no_run(run, tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    for name, said in (("none", "nothing"), ("file", "a file"), ("empty", "holds no run")):
        assert report(tmp_path / name) == 2
        assert_one_line(capsys, name, said)
    assert report(run, "--out", tmp_path / "file") == 2
    assert_one_line(capsys, "--out")


def test_runs_of_two_datasets_are_refused_unless_in_a_study_of_settings(run, tmp_path, capsys):
    write_run(tmp_path / "a", run)
    write_run(tmp_path / "b", run, dataset__name="cifar100")
    assert report(tmp_path / "a", tmp_path / "b") == 2
    assert_one_line(capsys, "digits", "cifar100", "separately")
    runs = [(name, "", "memo", {}) for name in "ab"]
    write_study(tmp_path, "freezing", runs)
    assert report(tmp_path) == 2
    assert_one_line(capsys, "digits", "cifar100")
    write_study(tmp_path, "settings", runs)
    (found,) = load.collect([tmp_path])
    assert [s.setting for s in compare.sections(found)] == ["cifar100/b0i4", "digits/b0i4"]


@pytest.mark.parametrize(
    "kind, changes, said",
    [
        ("curve", {}, ["run0", "total_mb"]),
        ("curve", {"format": 2}, ["format 1", "2"]),
        ("curves", {}, ["curves", "did you mean 'curve'"]),
        ("cuts", {"runs": None}, ["study.json"]),
        ("cuts", {"runs": [{"name": "a"}]}, ["study.json", "setting"]),
    ],
)
def test_a_study_that_cannot_be_read_is_one_line(tmp_path, capsys, kind, changes, said):
    write_study(tmp_path, kind, [("run0", "digits/b0i4", "memo", {"total_mb": "much"})])
    edit(tmp_path / "study.json", **changes)
    assert report(tmp_path) == 2
    assert_one_line(capsys, *said)


def test_a_folder_given_twice_and_one_within_a_study_count_once(run, tmp_path):
    write_run(tmp_path / "study" / "a", run)
    write_run(tmp_path / "other", run)
    write_study(tmp_path / "study", "settings", [("a", "digits/b0i4", "memo", {})])
    given = [tmp_path, tmp_path / "study", tmp_path / "study" / "a", tmp_path / "other"]
    study, loose = load.collect(given)
    assert [run.name for run in study.runs] == ["a"] and [r.name for r in loose.runs] == ["other"]
