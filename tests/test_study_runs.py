"""The small twins of all studies, run to their ends; in shards; stopped between two runs."""

import io
import json
import pathlib
import signal

import pytest
from test_run import lines_of, summary_of
from test_study import NAMES, read

from memo_jax.interrupts import Interrupted
from memo_jax.study import forecast, outline, runner

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def twins(tmp_path_factory) -> pathlib.Path:
    """The folder with the twins of all studies, run to their ends in this process."""
    folder = tmp_path_factory.mktemp("studies")
    for name in NAMES:
        assert runner.run(read(name, "digits", folder / name)) == []
    return folder


@pytest.mark.parametrize("name", NAMES)
def test_a_twin_runs_to_its_end_and_learns_each_base_task_once(name, twins):
    found = read(name, "digits", twins / name)
    content = json.loads((twins / name / "study.json").read_text())
    assert [run["name"] for run in content["runs"]] == [run.name for run in found.runs]
    assert (content["format"], content["kind"]) == (1, found.kind)
    for row, run in zip(content["runs"], found.runs):
        summary = summary_of(twins / name / run.name)
        assert summary["tasks_done"] == summary["num_tasks"]
        assert row["setting"] == f"{summary['dataset']}/{summary['setting']}"
        assert row["method"] == summary["method"] and row["labels"] == run.labels
    for family in outline.families(outline.entries(found)):
        learned = {
            entry.run.name: {row["task"] for row in lines_of(entry.folder, "epoch")}
            for entry in family
        }
        first, *others = learned.values()
        assert first == set(range(len(family[0].plan.tasks)))
        assert all(0 not in tasks and tasks for tasks in others)


def test_the_time_expected_is_that_of_comparable_runs(twins, capsys):
    folder = twins / "class_orders"
    found = read("class_orders", "digits", folder, study__seeds=(1, 2))
    entries = outline.entries(found)
    assert [entry.done for entry in entries] == [True, False] * 4
    summaries = forecast.measured(folder)
    assert len(summaries) >= 4
    for done, new in zip(entries[::2], entries[1::2]):
        summary = summary_of(done.folder)
        trained = summary["images_per_second"] * summary["seconds"]["train"]
        first = 1 if summary["base_from"] else 0
        # Digits have classes of nearly equal size.
        assert forecast.images(done.plan, done.class_size, first) == pytest.approx(
            trained, rel=0.03
        )
        own = forecast.seconds(new, bool(first), [summary])
        assert own == pytest.approx(summary["seconds"]["total"], rel=0.03)
        assert forecast.seconds(new, bool(first), summaries) > 0
    assert forecast.seconds(new, False, [{**summary, "backbone": "resnet8"}]) is None
    runner.run(found, dry_run=True)
    printed = capsys.readouterr().out
    assert printed.count("done") == 5 and "4 done, 4 to run, expected" in printed


def test_two_shards_give_the_results_of_one(twins, tmp_path):
    for shard in ("1/2", "2/2"):
        whole = read("base_classes", "digits", tmp_path / shard[0])
        assert runner.run(whole, shard=shard) == []
    names = []
    for path in tmp_path.glob("*/*/summary.json"):
        names.append(path.parent.name)
        expected = summary_of(twins / "base_classes" / names[-1])
        assert summary_of(path.parent)["digest"] == expected["digest"]
    assert sorted(names) == sorted(run.name for run in whole.runs)


class Stopping(io.StringIO):
    """A screen before which somebody asks to stop, as soon as the results of a run appear."""

    def write(self, text: str) -> int:
        if "accuracy in percent" in text:
            signal.raise_signal(signal.SIGTERM)
        return super().write(text)


def test_a_wish_to_stop_at_the_end_of_a_run_keeps_the_next_from_beginning(
    twins, tmp_path, monkeypatch
):
    monkeypatch.setattr("sys.stdout", Stopping())
    with pytest.raises(Interrupted, match="stopped by SIGTERM after its last task") as stop:
        runner.run(read("settings", "digits", tmp_path))
    assert stop.value.exit_code == 128 + signal.SIGTERM
    first = read("settings", "digits").runs[0].name
    assert [path.parent.name for path in tmp_path.glob("*/config.json")] == [first]
    expected = summary_of(twins / "settings" / first)
    assert summary_of(tmp_path / first)["digest"] == expected["digest"]
