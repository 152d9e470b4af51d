"""python -m memo_jax budget: the paper's tables, any other setting, and mistakes."""

import json
import pathlib
import subprocess
import sys

import pytest

from memo_jax import backbones, datasets, paper
from memo_jax.__main__ import main
from memo_jax.backbones import cifar_resnet
from memo_jax.commands import budget

ROOT = pathlib.Path(__file__).parent.parent
KEYS = [
    "setting",
    "point",
    "method",
    "backbone",
    "exemplars",
    "exemplar_mb",
    "parameters",
    "model_mb",
    "total_mb",
    "paper_exemplars",
]

# (setting, point, method): printed by the paper, by the paper's own formula.
OFF = {
    **{
        ("imagenet100/b50i5", point, method): (4970, 4969)
        for point in ("755", "aligned_to_der")
        for method in ("replay", "icarl", "wa")
    },
    ("imagenet100/b50i5", "1180", "memo"): (4170, 4171),
    ("imagenet1000/b0i100", "aligned_to_der", "memo"): (20666, 20665),
}


def rows_of(capsys, *args: str) -> list[dict]:
    assert main(["budget", *args, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.fixture(scope="module")
def printed() -> dict[tuple, tuple[dict, float]]:
    """(setting, point, method) -> the paper's entry and the megabytes of its table."""
    return {
        (table.setting, table.point, method): (entry, table.total_mb)
        for table in paper.memory_tables()
        for method, entry in table.rows.items()
    }


def test_every_number_of_the_17_tables_by_one_command(capsys, printed):
    rows = rows_of(capsys, "--paper")
    assert len({(row["setting"], row["point"]) for row in rows}) == 17
    assert len(rows) == len(printed) == 17 * 5
    off = {}
    for row in rows:
        assert list(row) == KEYS
        key = row["setting"], row["point"], row["method"]
        entry, total_mb = printed[key]
        assert (row["backbone"], row["paper_exemplars"]) == (entry["backbone"], entry["exemplars"])
        if row["exemplars"] != entry["exemplars"]:
            off[key] = (entry["exemplars"], row["exemplars"])
        # The paper cuts these after two to four digits; counts of exemplars are exact.
        assert row["parameters"] / 1e6 == pytest.approx(entry["params_m"], rel=0.025, abs=0.01)
        for name in ("model_mb", "exemplar_mb"):
            assert row[name] == pytest.approx(entry[name], rel=0.01, abs=0.02)
        assert row["total_mb"] == pytest.approx(total_mb, rel=0.01)
        assert row["total_mb"] == pytest.approx(row["exemplar_mb"] + row["model_mb"])
    assert off == OFF


def test_the_three_entries_that_are_off_are_marked(capsys):
    assert main(["budget", "--paper"]) == 0
    out = capsys.readouterr().out
    assert "3 entries of the paper are off its own formula" in out
    assert out.count("*") == len(OFF) + 1
    for printed, formula in set(OFF.values()):
        assert f"printed {printed}, formula {formula}" in out
    assert "vgg8: 412 exemplars more, printed 412" in out
    assert "inception_v3: 2382 exemplars more, printed 2512" in out


def test_one_row_from_a_shell():
    command = "budget --setting cifar100/b0i10 --method memo --backbone resnet32 --align-to der"
    done = subprocess.run(
        [sys.executable, "-m", "memo_jax", *command.split(), "--json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)
    assert list(row) == KEYS
    assert row["exemplars"] == row["paper_exemplars"] == 3312
    assert (row["parameters"], row["point"]) == (3_626_896, "aligned_to_der")
    assert row["total_mb"] == pytest.approx(3312 * 3072 / 2**20 + 3_626_896 * 4 / 2**20)


def test_another_backbone_is_aligned_to(capsys):
    (row,) = rows_of(
        capsys, "--setting=cifar100/b0i10", "--method=replay", "--align-to=der:resnet14"
    )
    assert row["exemplars"] == 3634  # the paper's point of 12.4 MB


@pytest.mark.parametrize(
    "change", ["--cut=memo-2", "--base-exemplars=3000", "--image=64x64x3", "--total-mb=23.5"]
)
def test_the_paper_is_beside_its_own_settings_only(change, capsys):
    (row,) = rows_of(capsys, "--setting=cifar100/b0i10", "--method=memo", change)
    assert row["exemplars"] != 3312 and row["paper_exemplars"] is None


def test_a_budget_beyond_all_images_keeps_all_images(capsys):
    for row in rows_of(capsys, "--setting=digits/b0i2", "--method", "replay", "joint"):
        assert row["exemplars"] == 1442


def test_digits_are_what_the_table_of_datasets_says():
    digits, facts = datasets.load("digits", "data", "auto"), budget.DATASETS["digits"]
    assert (digits.num_classes, digits.image_shape) == (facts.num_classes, facts.image_shape)
    assert len(digits.train) == facts.num_images


def test_output_that_nobody_reads_to_its_end_is_no_error():
    command = f"{sys.executable} -m memo_jax budget --paper | head -n 1"
    done = subprocess.run(command, shell=True, cwd=ROOT, capture_output=True, text=True)
    assert done.stderr == "" and len(done.stdout.splitlines()) == 1


def test_megabytes_are_filled(capsys):
    rows = rows_of(capsys, "--setting=cifar100/b0i10", "--total-mb=23.5")
    assert [row["method"] for row in rows] == ["replay", "icarl", "wa", "der", "memo"]
    for row in rows:
        assert row["total_mb"] <= 23.5 < row["total_mb"] + 3072 / 2**20


def test_any_image_size_number_of_classes_and_backbone(capsys, monkeypatch):
    small = {"mine": lambda: cifar_resnet.build(8)}
    known = backbones.builders() | small
    monkeypatch.setattr(backbones, "builders", lambda: known)
    args = "--setting=birds/b20i8 --classes=60 --image=48x40x1 --backbone=mine --method memo der"
    memo, der = rows_of(capsys, *args.split())
    trunk = 9 * (16 + 2 * 16 * 16 + 16 * 32 + 32 * 32) + 2 * (3 * 16 + 2 * 32)
    block = 9 * (32 * 64 + 64 * 64) + 2 * 2 * 64
    tasks = 1 + 5
    assert memo["parameters"] == trunk + tasks * block
    assert der["parameters"] == tasks * (trunk + block)
    assert memo["exemplars"] == 2000 + 5 * trunk * 4 // (48 * 40)
    assert memo["paper_exemplars"] is None


MISTAKES = {
    "nothing": ([], "expected --setting DATASET/bXiY or --paper"),
    "no command": (None, "COMMAND"),
    "unknown option": (["--seting=x"], "--seting"),
    "setting": (["--setting=cifar100"], "expected DATASET/bXiY such as cifar100/b0i10"),
    "dataset": (["--setting=cifar10O/b0i10"], "did you mean 'cifar10"),
    "method": (["--setting=cifar100/b0i10", "--method=mem"], "did you mean 'memo'"),
    "backbone": (["--setting=cifar100/b0i10", "--backbone=resnet33"], "did you mean 'resnet3"),
    "cut": (["--setting=cifar100/b0i10", "--cut=memo-4"], "memo-2, memo-3, b1"),
    "align": (["--setting=cifar100/b0i10", "--align-to=derr"], "did you mean 'der'"),
    "image": (["--setting=cifar100/b0i10", "--image=32x32"], "HxWxC"),
    "two budgets": (
        ["--setting=cifar100/b0i10", "--total-mb=3", "--exemplars=9"],
        "expected one budget, found --total-mb and --exemplars",
    ),
    "paper and more": (["--paper", "--cut=b1", "--total-mb=3"], "leave out --total-mb"),
    "no images": (["--setting=cifar100/b0i10", "--images=-5"], "--images: expected a number"),
    "aligned to no budget": (
        ["--setting=cifar100/b0i10", "--align-to=joint"],
        "no budget to match",
    ),
    "negative": (["--setting=cifar100/b0i10", "--total-mb=-3"], "above 0, found -3"),
    "below one a class": (["--setting=cifar100/b0i10", "--exemplars=99"], "each of 100 classes"),
    "models alone": (
        ["--setting=cifar100/b0i10", "--method=memo", "--total-mb=10"],
        "expected at most 10 MB, found 13.84 MB",
    ),
    "image too small": (
        ["--setting=cifar100/b0i10", "--backbone=inception_v3"],
        "at least 75 pixels a side, found 32x32",
    ),
    "no number of images": (["--setting=imagenet100/b0i10", "--method=joint"], "--images"),
    "too many classes": (["--setting=cifar100/b0i101"], "the first task has 101 classes"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line(mistake, capsys):
    args, named = MISTAKES[mistake]
    assert main([] if args is None else ["budget", *args]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.startswith("error: ")
    assert len(captured.err.splitlines()) == 1 and named in captured.err, captured.err
