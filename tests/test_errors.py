"""Bad input: one clear line before any work, exit code 2, nothing written or lost."""

import fcntl

import pytest

from configs import digits_b0i2
from memo_jax import experiment
from memo_jax.errors import UserError

DIGITS = "--config=configs/digits_b0i2.py"

# arguments after the config file -> what the line must name
MISTYPED = {
    "misspelt field": (["--config.schedule.bach_size=2"], ["bach_size", "batch_size"]),
    "misspelt section": (["--config.protocl.base=2"], ["protocl", "protocol"]),
    "wrong type": (["--config.seed=two"], ["seed", "two"]),
    "stray word": (["cifar"], ["cifar", "--config.NAME=VALUE"]),
    "unknown flag": (["--wrkdir=x"], ["wrkdir"]),
    "unknown backbone": (["--config.backbone.name=resnet33"], ["resnet33", "resnet32"]),
    "too many base classes": (["--config.protocol.base=11"], ["11", "10"]),
    "milestone that is no number": (["--config.schedule.later_milestones=(3"], ["later"]),
    "unwritable folder": (["--workdir=/dev/null/run"], ["/dev/null/run", "--workdir"]),
}


@pytest.mark.parametrize("mistake", MISTYPED)
def test_one_line_names_the_mistake_and_the_remedy(mistake, launch, tmp_path):
    args, named = MISTYPED[mistake]
    if not any(arg.startswith("--workdir") for arg in args):
        args = [*args, f"--workdir={tmp_path / 'run'}"]
    done = launch(DIGITS, *args)
    assert done.returncode == 2, done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    assert len(lines) == 1 and "Traceback" not in done.stderr, done.stderr
    for word in named:
        assert word in lines[0], lines[0]
    assert not list(tmp_path.rglob("checkpoints")), "work was begun"


# settings -> what the line must name
MISTAKES = {
    "cut": ({"backbone.cut": "memo-4"}, ["memo-4", "memo-2", "b1"]),
    "method": ({"method.name": "mem"}, ["'mem'", "memo"]),
    "dataset": ({"dataset.name": "digit"}, ["'digit'", "digits"]),
    "augmentation": ({"dataset.augment": "shft"}, ["'shft'", "shift"]),
    "schedule": ({"schedule.name": "papr"}, ["papr", "paper", "cosine"]),
    "selection": ({"memory.selection": "herdin"}, ["herdin", "herding"]),
    "allocation": ({"memory.allocation": "full"}, ["full", "fill"]),
    "align_to": ({"memory.align_to": "derr"}, ["memory.align_to", "derr", "der"]),
    "train_trunk": ({"method.train_trunk": "yes"}, ["train_trunk", "yes", "auto"]),
    "precision": ({"precision": "float16"}, ["'float16'", "bfloat16"]),
    "loop": ({"train.loop": "while"}, ["while", "python"]),
    "no task": ({"protocol.stop_after": 0}, ["protocol.stop_after", "0"]),
    "no increment": ({"protocol.increment": 0}, ["increment", "0"]),
    "budget below one per class": ({"memory.exemplars": 9}, ["9", "10 classes"]),
    "more exemplars than images": ({"memory.exemplars": 10**6}, ["1000000", "1442"]),
    "exceeded budget": ({"memory.total_mb": 0.5}, ["0.5 MB", "200 exemplars", "parameters"]),
    "unknown backbone to align to": (
        {"memory.exemplars": 0, "memory.align_to": "der:resnet33"},
        ["memory.align_to", "resnet33", "resnet3"],
    ),
    "nothing to align to": ({"memory.align_to": "joint"}, ["memory.align_to", "joint"]),
    "smaller than aligned to": (
        {"memory.exemplars": 0, "memory.align_to": "replay", "memory.base_exemplars": 0},
        ["replay takes 0.28 MB", "memo alone (1.13 MB)"],
    ),
    "all images above the budget": (
        {"method.name": "joint", "memory.exemplars": 0, "memory.total_mb": 0.1},
        ["0.1 MB", "1442 exemplars"],
    ),
    "network above the budget": (
        {"method.name": "finetune", "memory.exemplars": 0, "memory.total_mb": 0.1},
        ["0.1 MB", "74,352 parameters"],
    ),
    "budget that is no number": (
        {"memory.exemplars": 0, "memory.total_mb": float("nan")},
        ["total_mb", "nan"],
    ),
    "batch of nothing": ({"schedule.batch_size": 0}, ["batch_size", "0"]),
    "evaluation of nothing": ({"train.eval_batch_size": 0}, ["eval_batch_size", "0"]),
    "no epochs": ({"schedule.base_epochs": 0}, ["epoch", "0", "base_epochs"]),
    "milestones in disorder": ({"schedule.base_milestones": (9, 5)}, ["(9, 5)", "base_mile"]),
    "negative seed": ({"protocol.class_order_seed": -1}, ["class_order_seed", "-1"]),
    "huge seed": ({"seed": 10**22}, ["seed", "4294967295"]),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_value_that_does_not_fit_is_told_before_any_work(mistake, tmp_path):
    settings, named = MISTAKES[mistake]
    config = digits_b0i2.get_config()
    config.update_from_flattened_dict(settings)
    with pytest.raises(UserError) as told:
        experiment.run(config, tmp_path / "run")
    assert len(str(told.value).splitlines()) == 1
    for word in named:
        assert word in str(told.value), told.value
    assert not list(tmp_path.rglob("checkpoints")), "work was begun"


def test_missing_config_and_missing_file(launch):
    none = launch()
    assert none.returncode == 2 and "--config" in none.stderr and "Traceback" not in none.stderr
    absent = launch("--config=configs/cifar_b0i11.py")
    assert absent.returncode == 2 and "configs/cifar_b0i11.py" in absent.stderr
    assert "Traceback" not in absent.stderr


BROKEN = {
    "syntax": "def get_config(:",
    "import": "import no_such_module",
    "no get_config": "x = 1",
    "unknown field": (
        "from configs import base\n"
        "def get_config():\n"
        "    config = base.get_config()\n"
        "    config.schedule.bach_size = 3\n"
        "    return config\n"
    ),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_config_file_with_a_mistake_is_one_line(kind, launch, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(BROKEN[kind])
    done = launch(f"--config={file}", f"--workdir={tmp_path / 'run'}")
    assert done.returncode == 2 and "Traceback" not in done.stderr, done.stderr
    assert done.stderr.startswith("error:") and len(done.stderr.splitlines()) == 1, done.stderr
    if kind == "unknown field":
        assert "bach_size" in done.stderr and "batch_size" in done.stderr


def test_help_is_printed(launch):
    done = launch("--help")
    assert done.returncode == 0 and "--config" in done.stdout


def test_missing_data_is_told_at_once(launch, tmp_path):
    empty = tmp_path / "empty"
    done = launch(
        "--config=configs/cifar_b0i10.py",
        f"--config.dataset.path={empty}",
        "--config.dataset.source=local",
        f"--workdir={tmp_path / 'run'}",
    )
    assert done.returncode == 2
    assert "cifar-100-python" in done.stderr and str(empty) in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr


@pytest.mark.parametrize("content", ["[]", "{", '{"requested": 3}'])
def test_a_folder_with_another_config_json_is_refused(content, launch, tmp_path):
    (tmp_path / "config.json").write_text(content)
    done = launch(DIGITS, f"--workdir={tmp_path}")
    assert done.returncode == 2 and "config.json" in done.stderr
    assert "Traceback" not in done.stderr


def test_two_processes_do_not_work_in_one_folder(launch, tmp_path):
    with (tmp_path / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = launch(DIGITS, f"--workdir={tmp_path}")
    assert done.returncode == 2 and "another process" in done.stderr


def test_a_folder_of_unknown_checkpoints_is_not_touched(launch, tmp_path):
    (tmp_path / "checkpoints" / "task_000").mkdir(parents=True)
    done = launch(DIGITS, f"--workdir={tmp_path}")
    assert done.returncode == 2 and "config.json" in done.stderr
    found = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")}
    assert found == {".lock", "checkpoints", "checkpoints/task_000"}
