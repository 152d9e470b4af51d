"""The comparison with PyTorch: a tiny real run of the command, and what it says to bad input."""

import importlib.util
import json
import pathlib
import statistics
import subprocess
import sys
import types

import pytest
from absl import flags
from dataset_files import TINY100, write_official

from benchmarks import compare, settings
from memo_jax.datasets import cifar100
from memo_jax.protocol import Task

ROOT = pathlib.Path(__file__).parent.parent
DIGITS = "--config=configs/digits_b0i2.py"
SIDES = ["jax", "torch"] if importlib.util.find_spec("torch") else ["jax"]
"""Those that can run here."""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """(folder, benchmark.json, what was printed) of the command on two tasks of two digits."""
    folder = tmp_path_factory.mktemp("compare")
    args = ["--tasks=2", "--epochs=1", "--repeats=2", "--steps=2", f"--out={folder}"]
    args += [DIGITS, "--config.train.eval_batch_size=100", "--config.memory.exemplars=20"]
    args += [] if "torch" in SIDES else ["--jax-only"]
    command = [sys.executable, "-m", "benchmarks.compare", *args]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=500)
    logs = "\n".join(log.read_text()[-2000:] for log in folder.glob("*.log"))
    assert done.returncode == 0, done.stderr + logs
    return folder, json.loads((folder / "benchmark.json").read_text()), done.stdout


@pytest.mark.slow
def test_everything_asked_for_is_measured_on_every_side(run):
    _, results, _ = run
    rows = {(row["what"], row["task"]): row for row in results["rows"]}
    each = {(what, task) for what in ("train", "compile", "forward") for task in (1, 2)}
    whole = {"run", "run_train", "run_exemplars", "run_evaluate", "run_rest", "host_memory"}
    assert set(rows) == each | {("herding", 2), ("evaluate", 2)} | {(name, None) for name in whole}
    for (what, task), row in rows.items():
        repeats = 2 if what in ("train", "forward", "herding", "evaluate") else 1
        assert list(row["values"]) == SIDES
        assert row["blocks"] == task  # MEMO has a block per task
        for values in row["values"].values():
            assert len(values) == repeats and all(value >= 0 for value in values)
    assert list(rows["train", 2]["images"].values()) == [64] * len(SIDES)
    parts = sum(rows[name, None]["median"]["jax"] for name in whole if name.startswith("run_"))
    assert parts == pytest.approx(rows["run", None]["median"]["jax"])


@pytest.mark.slow
def test_medians_ratios_and_rates_follow_from_the_repeats(run):
    for row in run[1]["rows"]:
        median = {side: statistics.median(values) for side, values in row["values"].items()}
        assert row["median"] == pytest.approx(median)
        assert all(row["least"][s] <= median[s] <= row["most"][s] for s in median)
        if "torch" in SIDES:
            assert row["ratio"] == pytest.approx(median["torch"] / median["jax"])
        else:
            assert row["ratio"] is None
        for side, rate in row.get("images_per_second", {}).items():
            assert rate * median[side] == pytest.approx(row["images"][side])


@pytest.mark.slow
def test_both_sides_learn(run):
    accuracy = run[1]["accuracy"]
    assert list(accuracy) == SIDES
    for (rules,) in accuracy.values():
        assert list(rules) == ["head", "nearest_mean"]
        # After one epoch heads are a matter of luck (PyTorch's sums differ from run to run).
        first, second = rules["nearest_mean"]
        assert first > 80 and 50 < second <= 100, accuracy


@pytest.mark.slow
def test_table_and_plot_are_there_and_say_what_was_measured(run):
    folder, results, printed = run
    table = (folder / "table.md").read_text()
    assert table in printed
    about, lines = results["about"], table.splitlines()
    assert "memo on digits (digits_b0i2), resnet8, 2 tasks" in lines[0]
    assert about["sides"]["jax"]["versions"]["jax"] in table
    assert "--tasks=2" in about["command"] and about["epochs"] == [1, 1]
    assert ("above 1, JAX is faster" in table) == ("torch" in SIDES)
    step = next(line for line in lines if line.startswith("| training step, 2 blocks (task 2)"))
    row = next(row for row in results["rows"] if (row["what"], row["task"]) == ("train", 2))
    if "torch" in SIDES:
        assert f" {row['ratio']:.2f} " in step
    assert len({line.count("|") for line in lines if line.startswith("|")}) == 1
    assert (folder / "plot.png").read_bytes().startswith(b"\x89PNG")


def test_sides_take_turns_and_a_step_is_a_share_of_a_repeat(monkeypatch):
    monkeypatch.setattr(compare, "PAUSE", 0)
    asked = []

    class Side:
        def __init__(self, name, seconds):
            self.name, self.seconds = name, seconds

        def ask(self, do, **request):
            asked.append((do, self.name))
            made = {"images": 640, "steps": 5, "compile_seconds": 3.0}
            return made if do == "prepare" else {"seconds": self.seconds}

    wanted = types.SimpleNamespace(repeats=3, job=types.SimpleNamespace(blocks=lambda task: 1))
    sides = {"jax": Side("jax", 10.0), "torch": Side("torch", 20.0)}
    step, compilation = compare.section(wanted, sides, "train", Task(0, 0, 2))
    turns = [name for do, name in asked if do == "measure"]
    assert turns == ["jax", "torch", "torch", "jax", "jax", "torch"]
    assert step["values"] == {"jax": [2.0] * 3, "torch": [4.0] * 3} and step["ratio"] == 2
    assert step["images_per_second"] == {"jax": 64, "torch": 32}
    assert compilation["values"] == {"jax": [3.0], "torch": [3.0]}


def test_the_twins_process_knows_no_jax():
    pytest.importorskip("torch")
    code = "import sys, benchmarks.worker, benchmarks.torch_side; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0


# arguments -> what the line must name
MISTAKES = {
    "no config": ([], ["--config"]),
    "unknown option": ([DIGITS, "--epoch=1"], ["epoch"]),
    "unknown setting": ([DIGITS, "--config.bach=1"], ["bach"]),
    "number that is none": ([DIGITS, "--tasks=two"], ["--tasks", "two"]),
    "too many tasks": ([DIGITS, "--tasks=6"], ["--tasks", "5", "6"]),
    "no epochs": ([DIGITS, "--epochs=0"], ["--epochs", "0"]),
    "no repeats": ([DIGITS, "--repeats=0"], ["--repeats", "0"]),
    "precision": ([DIGITS, "--precision=float8"], ["float8", "bfloat16"]),
    "compile": ([DIGITS, "--compile=fast"], ["fast", "max-autotune"]),
    "loader": ([DIGITS, "--loader=pill"], ["pill", "pil"]),
    "two onlies": ([DIGITS, "--jax-only", "--torch-only"], ["--torch-only", "--jax-only"]),
    "folder of launch.py": ([DIGITS, "--workdir=runs/x"], ["--workdir", "--out"]),
    "folder": ([DIGITS, "--jax-only", "--out=/dev/null/x"], ["--out", "/dev/null/x"]),
}
FOR_THE_TWIN = {
    "backbone": (
        ["--config.backbone.name=vgg8"],
        ["vgg8", "resnet32, ", "resnet50", "convnet2", "--jax-only"],
    ),
    "method": (["--config.method.name=icarl"], ["icarl", "memo, der, replay", "--jax-only"]),
    "selection": (["--config.memory.selection=nearest"], ["nearest", "herding", "--jax-only"]),
}


@pytest.fixture
def told(capsys, monkeypatch):
    """The one line that the command says to some arguments."""

    def tell(args: list[str]) -> str:
        for name in [name for name in flags.FLAGS if name.startswith("config.")]:
            delattr(flags.FLAGS, name)  # of a command line that this process parsed before
        monkeypatch.setattr(sys, "argv", ["compare.py", *args])
        assert compare.main(sys.argv) == 2
        captured = capsys.readouterr()
        assert captured.err.startswith("error: ") and captured.err.count("\n") == 1, captured.err
        return captured.err

    return tell


@pytest.mark.parametrize("mistake", MISTAKES)
def test_one_line_names_the_mistake(mistake, told, monkeypatch):
    monkeypatch.setattr(settings, "_importable", lambda name: True)
    args, named = MISTAKES[mistake]
    line = told(args)
    assert all(word in line for word in named), line


@pytest.mark.parametrize("mistake", FOR_THE_TWIN)
def test_what_the_twin_does_not_know_is_told(mistake, told, monkeypatch, tmp_path):
    monkeypatch.setattr(settings, "_importable", lambda name: True)
    monkeypatch.setattr(cifar100, "SPEC", TINY100)
    write_official(TINY100, tmp_path)  # digits are too small for the backbones it does not know
    cifar = ["--config=configs/cifar_b0i10.py", f"--config.dataset.path={tmp_path}"]
    args, named = FOR_THE_TWIN[mistake]
    line = told([*cifar, "--config.protocol.increment=2", *args])
    assert all(word in line for word in named), line


def test_without_pytorch_the_remedies_are_told(told, monkeypatch):
    monkeypatch.setattr(settings, "_importable", lambda name: False)
    line = told([DIGITS])
    assert "requirements-torch.txt" in line and "--jax-only" in line


def test_fewer_epochs_keep_the_milestones_in_proportion(monkeypatch):
    argv = ["compare.py", "--jax-only", "--epochs=5", DIGITS, "--config.schedule.base_epochs=20"]
    monkeypatch.setattr(sys, "argv", argv)
    job = settings.parse(argv, "").job
    assert [s["epochs"] for s in job.schedules] == [5, 5]
    # After 6 and 10 epochs of 20, and of 12.
    assert [s["milestones"] for s in job.schedules] == [(2,), (2, 4)]
