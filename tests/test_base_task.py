"""Sharing a base task between runs, and the two lines without a budget, through whole runs."""

import json
import pathlib
import shutil

import jax
import numpy as np
import pytest
from orbax.checkpoint import v1 as ocp

from configs import digits_b0i2
from memo_jax import base_task, datasets, experiment, parallel, planning
from memo_jax.errors import UserError
from memo_jax.freezing import path_of
from memo_jax.memory_plan import network_of
from memo_jax.methods import get

TINY = {
    "protocol.increment": 5,
    "schedule.base_epochs": 2,
    "schedule.base_milestones": (1,),
    "schedule.later_epochs": 1,
    "schedule.later_milestones": (),
}
IMAGES = 1442  # training images of the digits


def config_of(method: str, **settings):
    config = digits_b0i2.get_config(method)
    named = {name.replace("__", "."): value for name, value in settings.items()}
    config.update_from_flattened_dict(TINY | named)
    return config


def run(workdir: pathlib.Path, method: str, **settings) -> dict:
    return experiment.run(config_of(method, **settings), workdir)


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> pathlib.Path:
    """A finished run of MEMO."""
    workdir = tmp_path_factory.mktemp("source") / "memo"
    run(workdir, "memo")
    return workdir


def borrow(source: pathlib.Path, method: str, **settings) -> dict:
    """The variables with which a run of `method` starts from `source`."""
    config = config_of(method, **settings)
    dataset = datasets.load("digits", "data", "auto")
    plan = planning.make(config, dataset)
    resolved = planning.resolved(config, plan)
    return base_task.load(source, resolved, plan.net, plan.tasks[0], parallel.data_mesh())


def as_saved(source: pathlib.Path) -> dict[str, np.ndarray]:
    """The variables in the checkpoint of a run's base task, by path, read with Orbax alone."""
    saved = ocp.load(source.absolute() / "checkpoints" / "task_000")
    return {name: np.asarray(leaf) for name, leaf in saved.items() if "variables" in name}


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("der", {}),
        ("wa", {"memory__exemplars": 300, "memory__selection": "nearest"}),
        ("memo", {"backbone__cut": "b1", "schedule__later_epochs": 2}),
        ("replay", {"protocol__base": 5, "protocol__increment": 2}),
    ],
)
def test_the_base_task_of_another_run_is_taken_over_bit_by_bit(method, settings, source):
    variables = borrow(source, method, **settings)
    saved = as_saved(source)
    cut = settings.get("backbone__cut", "memo")
    net = network_of(get(method), "resnet8", cut, (8, 8, 1))
    assert list(variables["params"]["trunk"]) == [name for name, _ in net.trunk_units]
    assert list(variables["params"]["blocks"][0]) == [name for name, _ in net.block_units]
    leaves = jax.tree_util.tree_leaves_with_path({"variables": variables})
    assert len(leaves) == len(saved)
    for path, leaf in leaves:
        parts = path_of(path).replace("trunk/", "").replace("blocks/0/", "")
        (same,) = (
            name for name in saved if name.replace("trunk/", "").replace("blocks/0/", "") == parts
        )
        np.testing.assert_array_equal(leaf, saved[same])


def test_a_run_starts_from_it_and_goes_on_without_its_source(source, tmp_path):
    copy, workdir = tmp_path / "copy", tmp_path / "run"
    shutil.copytree(source, copy)
    whole = run(workdir, "memo", base_from=str(copy))
    theirs = json.loads((source / "summary.json").read_text())
    assert whole["base_from"] == str(copy) and whole["tasks_done"] == 2
    # What it goes on to learn is what the run that learned its base task itself has learned.
    assert whole["digest"] == theirs["digest"] and whole["accuracy"] == theirs["accuracy"]
    lines = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
    assert {line["task"] for line in lines if line["kind"] == "epoch"} == {1}
    shutil.rmtree(copy)
    shutil.rmtree(workdir / "checkpoints" / "task_001")
    (workdir / "summary.json").unlink()
    assert run(workdir, "memo", base_from=str(copy))["digest"] == whole["digest"]


DIFFERENT = {
    "seed": ({"seed": 2}, "seed: 1 there, 2 here"),
    "order": ({"protocol__class_order_seed": 5}, "protocol.class_order_seed: 1993 there, 5 here"),
    "classes": ({"protocol__base": 4}, "classes of the base task: 5 there, 4 here"),
    "backbone": ({"backbone__name": "resnet14"}, "backbone.name: resnet8 there, resnet14 here"),
    "rate": ({"schedule__learning_rate": 0.2}, "schedule.base.learning_rate: 0.1 there, 0.2 here"),
    "epochs": ({"schedule__base_epochs": 3}, "schedule.base.epochs: 2 there, 3 here"),
    "batch": ({"schedule__batch_size": 16}, "schedule.batch_size: 64 there, 16 here"),
    "precision": ({"precision": "bfloat16"}, "precision: float32 there, bfloat16 here"),
    "augment": ({"dataset__augment": "none"}, "dataset.augment: shift there, none here"),
}


@pytest.mark.parametrize("what", DIFFERENT)
def test_a_base_task_learned_otherwise_is_refused_with_the_difference(what, source, tmp_path):
    settings, line = DIFFERENT[what]
    with pytest.raises(UserError, match="another base task") as told:
        run(tmp_path, "der", base_from=str(source), **settings)
    assert line in str(told.value) and str(told.value).count(" there, ") == 1
    assert not (tmp_path / "checkpoints").exists()


def test_a_run_may_stop_before_the_end_of_the_stream(source, tmp_path):
    summary = run(tmp_path, "replay", base_from=str(source), protocol__stop_after=1)
    assert (summary["num_tasks"], summary["tasks_done"], summary["classes_seen"]) == (1, 1, [5])


def test_a_source_that_cannot_be_used_is_told_and_left_as_it_is(source, tmp_path):
    with pytest.raises(UserError, match=r"there is no run in .*nowhere"):
        run(tmp_path / "run", "der", base_from=str(tmp_path / "nowhere"))
    copy = tmp_path / "copy"
    shutil.copytree(source, copy)
    files = [p for p in (copy / "checkpoints" / "task_000").rglob("*") if p.is_file()]
    largest = max(files, key=lambda p: p.stat().st_size)
    content = bytearray(largest.read_bytes())
    content[len(content) // 2] ^= 1
    largest.write_bytes(content)
    before = sorted(copy.rglob("*"))
    with pytest.raises(UserError, match="task_000 is damaged"):
        run(tmp_path / "run", "der", base_from=str(copy))
    assert sorted(copy.rglob("*")) == before
    shutil.rmtree(copy / "checkpoints" / "task_000")
    with pytest.raises(UserError, match="has not finished task 1"):
        run(tmp_path / "run", "der", base_from=str(copy))
    config = json.loads((copy / "config.json").read_text())
    config["resolved"]["method"]["name"] = "mine"
    (copy / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match=r"base_from: the network of .* cannot be made: .*'mine'"):
        run(tmp_path / "run", "der", base_from=str(copy))
    del config["resolved"]["method"]["name"]
    for content in ("[]", json.dumps(config)):
        (copy / "config.json").write_text(content)
        with pytest.raises(UserError, match="is not a config of this version of the program"):
            run(tmp_path / "run", "der", base_from=str(copy))
    assert not (tmp_path / "run" / "checkpoints").exists()


# ---- the two lines without a budget


def test_finetune_keeps_nothing_and_has_no_nearest_mean(source, tmp_path):
    settings = {"base_from": str(source), "schedule__later_epochs": 2, "profile": True}
    summary = run(tmp_path, "finetune", **settings)
    assert set(summary["accuracy"]) == set(summary["averages"]) == {"head"}
    assert summary["memory"]["exemplars"] == summary["memory"]["exemplar_mb"] == 0
    assert [held["filled"] for held in summary["memory_by_task"]] == [0, 0]
    # Nothing reminds it of the old classes.
    assert summary["accuracy_matrix"][1][0] < 20 < summary["accuracy_matrix"][1][1]
    # A memory without slots is restored as well.
    (tmp_path / "summary.json").unlink()
    assert run(tmp_path, "finetune", **settings) == summary
    # The second epoch of the task that was trained has left a trace.
    assert [path.name for path in (tmp_path / "profile").iterdir()] == ["task_001"]
    assert list((tmp_path / "profile").rglob("*.xplane.pb"))


def test_joint_keeps_every_image_whatever_the_budget(source, tmp_path):
    summary = run(tmp_path, "joint", base_from=str(source), memory__exemplars=10)
    assert summary["memory"]["exemplars"] == IMAGES
    first, last = (held["filled"] for held in summary["memory_by_task"])
    assert last == IMAGES and 0.4 * IMAGES < first < 0.6 * IMAGES
    assert summary["accuracy_matrix"][1][0] > 60


def test_memory_by_task_is_that_of_the_arrays(source):
    summary = json.loads((source / "summary.json").read_text())
    first, last = summary["memory_by_task"]
    ends = {name: last[name] for name in summary["memory"]}
    assert ends == pytest.approx(summary["memory"])
    block = last["parameters"] - first["parameters"]
    assert (first["parameters"], block) == (
        74_640 - 288,
        55_552,
    )  # of one channel less: 288 weights of the stem
    assert (first["filled"], last["filled"]) == (200, 200)
