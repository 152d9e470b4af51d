"""Studies on the command line: mistakes, a run that fails, a study that is killed and resumed."""

import json
import signal

import pytest
from test_run import lines_of, summary_of, wait_for
from test_study import read

from configs import digits_b0i2
from memo_jax import study
from memo_jax.errors import UserError
from memo_jax.study import Case, runner


def made(*cases: Case, folder=None, **fields_) -> study.Study:
    """A study of the given cases of the digits experiment."""
    declared = study.declare(
        digits_b0i2.get_config(), **{"kind": "settings", "title": "made", "cases": cases, **fields_}
    )
    return study.read(declared, "made", folder and str(folder))


CASE = Case("a", {})
# what is declared -> what the line must name
MISTAKES = {
    "two of one name": (lambda: made(CASE, CASE), ["'a-seed1'", "names of their own"]),
    "none": (lambda: made(), ["found none"]),
    "unknown setting": (
        lambda: made(Case("a", {"schedule.bach_size": 3})),
        ["a-seed1", "'schedule.batch_size'"],
    ),
    "wrong type": (
        lambda: made(Case("a", {"seed": 1, "backbone.name": 3})),
        ["backbone.name", "3"],
    ),
    "no case": (lambda: made("a"), ["study.cases"]),
    "name of no folder": (lambda: made(Case("a/b", {})), ["'a/b-seed1'"]),
    "unknown kind": (lambda: made(CASE, kind="curves"), ["study.kind", "'curves'", "'curve'"]),
    "no label": (lambda: made(CASE, kind="curve"), ["run a:", "total_mb"]),
    "unknown scale": (lambda: read("cuts", "digit"), ["'digit'", "'digits'"]),
    "setting of the runs": (
        lambda: read("settings", method__name="memo"),
        ["--config.method.name", "--only"],
    ),
    "one seed": (lambda: read("settings", seed=3), ["--config.study.seeds"]),
    "seeds twice": (lambda: read("cuts", study__seeds=(1, 1)), ["(1, 1)"]),
    "no number": (lambda: read("cuts", study__seeds=("one",)), ["one"]),
    "only": (
        lambda: runner.run(read("cuts"), only="memo2*"),
        ["--only", "'memo2*'", "memo-2-seed1"],
    ),
    **{
        f"shard {text}": (lambda text=text: runner.run(read("cuts"), shard=text), ["--shard", text])
        for text in ("0/2", "3/2", "2", "1/0", "a/b", "1/2/3", "-1/2")
    },
    "nothing that can run": (
        lambda: runner.run(read("curve_cifar", schedule__name="papr")),
        ["7.6mb-replay-seed1", "'papr'", "paper"],
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line_before_any_work(mistake, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    act, named = MISTAKES[mistake]
    with pytest.raises(UserError) as told:
        act()
    assert len(str(told.value).splitlines()) == 1
    for word in named:
        assert word in str(told.value), told.value
    assert not list(tmp_path.iterdir()), "work was begun"


def test_an_unknown_field_of_a_study_is_refused():
    with pytest.raises(TypeError, match="unexpected keyword argument 'titel'"):
        made(CASE, titel="made")


def test_a_folder_in_other_use_is_refused(tmp_path):
    runner.describe(made(CASE, folder=tmp_path / "one"))
    declared = study.declare(digits_b0i2.get_config(), kind="cuts", title="", cases=[CASE])
    with pytest.raises(UserError, match="holds the study made, not other"):
        runner.describe(study.read(declared, "other", str(tmp_path / "one")))
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").write_text("{}")
    with pytest.raises(UserError, match="is the folder of a run"):
        runner.describe(made(CASE, folder=tmp_path / "run"))
    with pytest.raises(UserError, match="cannot be written to"):
        runner.describe(made(CASE, folder="/dev/null/study"))
    (tmp_path / "one" / "study.json").write_text("{")
    with pytest.raises(UserError, match="is damaged"):
        runner.describe(made(CASE, folder=tmp_path / "one"))


def test_begun_runs_of_other_seeds_stay_listed(tmp_path):
    def listed(seeds: tuple) -> list[str]:
        runner.describe(read("cuts", "digits", tmp_path, study__seeds=seeds))
        return [run["name"] for run in json.loads((tmp_path / "study.json").read_text())["runs"]]

    assert listed((2, 3)) == ["memo-2-seed2", "memo-2-seed3", "memo-seed2", "memo-seed3"]
    (tmp_path / "memo-seed3").mkdir()
    assert listed((1,)) == ["memo-2-seed1", "memo-seed1", "memo-seed3"]


def test_the_command_line_tells_mistakes_and_plans(launch, tmp_path):
    config = "--config=configs/digits_b0i2.py"
    one = launch(config, "--shard=1/2")
    assert one.returncode == 2 and "--shard chooses among the runs of a study" in one.stderr
    cuts = "--config=configs/studies/cuts.py"
    misspelt = launch(f"{cuts}:digits", "--config.schedule.bach_size=3")
    assert misspelt.returncode == 2 and "batch_size" in misspelt.stderr
    for done in (one, misspelt, launch(f"{cuts}:digit")):
        assert done.returncode == 2 and len(done.stderr.splitlines()) == 1, done.stderr
    seeds = launch(cuts, "--config.study.seeds=1,2", "--dry-run", "--only=memo-seed?")
    assert "2 of 14 runs" in seeds.stdout and "base task of memo-seed1" not in seeds.stdout
    assert not list(tmp_path.iterdir())


FAILING = """
from configs import studies, digits_b0i2
from memo_jax.study import Case, declare

def get_config(scale="digits"):
    cases = [
        Case("diverges", {"schedule.later_weight_decay": 1e30}),
        Case("learns", {"method.name": "replay"}),
        Case("nonsense", {"memory.allocation": "full"}),
    ]
    return declare(studies.start(scale, digits_b0i2), kind="settings", title="made", cases=cases)
"""


@pytest.mark.slow
def test_a_failed_run_does_not_keep_the_others_from_running(launch, tmp_path):
    file = tmp_path / "made.py"
    file.write_text(FAILING)
    done = launch(f"--config={file}", f"--workdir={tmp_path / 'study'}")
    assert done.returncode == 1 and "Traceback" not in done.stderr, done.stderr
    assert "error: diverges-seed1: " in done.stderr and "not finite" in done.stderr
    assert done.stderr.splitlines()[-1] == "2 runs failed: nonsense-seed1, diverges-seed1"
    assert "memory.allocation: there is no 'full'" in done.stdout
    # The base task of the run that failed later on is good.
    summary = summary_of(tmp_path / "study" / "learns-seed1")
    assert summary["tasks_done"] == 2 and summary["base_from"].endswith("diverges-seed1")


@pytest.mark.slow
def test_a_study_that_was_killed_goes_on_and_repeats_nothing(launch, tmp_path):
    args = ("--config=configs/studies/settings.py:digits", "--only=digits-b0i5-[riw]*")
    args += (f"--workdir={tmp_path}",)
    folders = [tmp_path / f"digits-b0i5-{method}-seed1" for method in ("replay", "icarl", "wa")]
    for folder, stop in zip(folders[1:], (signal.SIGKILL, signal.SIGTERM)):
        process = launch(*args, wait=False)
        wait_for(process, (folder / "config.json").exists, f"start of {folder.name}")
        process.send_signal(stop)
        _, err = process.communicate(timeout=120)
        if stop == signal.SIGTERM:
            assert process.returncode == 128 + stop, err
            assert err.count("stopped") == 1 and "Traceback" not in err, err
    finished = {
        path: path.stat().st_mtime_ns
        for folder in folders[:2]
        for path in folder.rglob("*")
        if path.is_file()
    }
    last = launch(*args)
    assert last.returncode == 0, last.stderr
    assert "2 done, 1 to run" in last.stdout and "[1 of 1] digits-b0i5-wa-seed1" in last.stdout
    assert {path: path.stat().st_mtime_ns for path in finished} == finished
    for folder, tasks in zip(folders, ({0, 1}, {1}, {1})):
        assert summary_of(folder)["tasks_done"] == 2
        assert {row["task"] for row in lines_of(folder, "epoch")} == tasks
