"""benchmarks.gpu: what is carried to a machine without a network, and what is done there."""

import ast
import dataclasses
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import zipfile
from importlib import metadata

import numpy as np
import pytest
from absl import flags
from dataset_files import write_official

import launch
from benchmarks import gpu, gpu_pack, settings
from benchmarks.gpu_parts import Part
from memo_jax import datasets, planning
from memo_jax.datasets import cifar100
from memo_jax.errors import UserError

ROOT = pathlib.Path(__file__).parent.parent


def tree(root: pathlib.Path) -> dict[str, bytes]:
    """The content of every file below `root`."""
    files = [path for path in root.rglob("*") if path.is_file()]
    return {str(path.relative_to(root)): path.read_bytes() for path in files}


def command(*args) -> subprocess.CompletedProcess:
    """The command as a user would start it."""
    words = [sys.executable, "-m", "benchmarks.gpu", *map(str, args)]
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=500)


def one_line(text: str) -> str:
    """The error line, if that is all there is."""
    assert text.startswith("error: ") and text.count("\n") == 1, text
    return text


# Packs -------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
    """50 kB that cannot be compressed, in two files."""
    root = tmp_path / "folder"
    (root / "inner").mkdir(parents=True)
    draws = np.random.default_rng(0)
    (root / "inner/train").write_bytes(draws.bytes(40_000))
    (root / "meta").write_bytes(draws.bytes(10_000))
    return root


def split(folder: pathlib.Path, at: pathlib.Path, size: int = 20_000) -> list[pathlib.Path]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return gpu_pack.split(folder, files, at, "data", size)


def test_parts_are_small_and_give_every_byte_back(folder, tmp_path):
    parts = split(folder, tmp_path / "pack")
    assert [part.name for part in parts] == ["data.00", "data.01", "data.02"]
    assert all(part.stat().st_size <= 20_000 for part in parts)
    gpu_pack.join(tmp_path / "pack", "data", tmp_path / "there/data")
    assert tree(tmp_path / "there/data") == tree(folder)
    (tmp_path / "there/data/meta").write_text("newer")
    gpu_pack.join(tmp_path / "pack", "data", tmp_path / "there/data")
    assert (tmp_path / "there/data/meta").read_text() == "newer"


def test_a_smaller_pack_leaves_no_part_of_a_larger_one(folder, tmp_path):
    split(folder, tmp_path / "pack", 10_000)
    split(folder, tmp_path / "pack", 60_000)
    assert set(tree(tmp_path / "pack")) == {"data.00", "data.json"}


def test_missing_and_damaged_parts_are_named_and_nothing_is_unpacked(folder, tmp_path):
    parts, there = split(folder, tmp_path / "pack"), tmp_path / "there/data"
    damaged = bytearray(parts[2].read_bytes())
    damaged[100] ^= 1
    parts[0].unlink()
    with pytest.raises(UserError, match=r"of 3 parts of data missing: data\.00; carry"):
        gpu_pack.join(tmp_path / "pack", "data", there)
    parts[2].write_bytes(damaged)
    with pytest.raises(UserError, match=r"missing: data\.00; damaged: data\.02; carry"):
        gpu_pack.join(tmp_path / "pack", "data", there)
    assert not there.parent.exists()


# Packages ----------------------------------------------------------------------------------------


def wheel(at: pathlib.Path, name: str, version: str) -> None:
    """A package of one empty module."""
    at.mkdir(exist_ok=True)
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(at / f"{name}-{version}-py3-none-any.whl", "w") as archive:
        archive.writestr(f"{name}.py", "")
        archive.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        )
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")


def test_only_what_is_missing_or_too_old_is_installed(tmp_path, monkeypatch):
    wheels, site = tmp_path / "wheels", tmp_path / "site"
    wheel(wheels, "memo_absent", "1.0")
    wheel(wheels, "numpy", "99.0")
    wheel(wheels, "ml_collections", "98.0")
    old = site / "ml_collections-0.1.dist-info"
    old.mkdir(parents=True)
    (old / "METADATA").write_text("Metadata-Version: 2.1\nName: ml_collections\nVersion: 0.1\n")
    monkeypatch.setenv("PYTHONPATH", str(site))
    names = ["numpy", "memo-absent", "ml-collections"]
    chosen = gpu_pack.install(wheels, site, names)
    assert sorted(chosen) == ["memo_absent==1.0", "ml_collections==98.0"]
    assert (site / "memo_absent.py").exists() and not (site / "numpy.py").exists()
    assert gpu_pack.install(wheels, site, names) == []
    with pytest.raises(UserError, match=r"nowhere-to-be-found$"):
        gpu_pack.install(wheels, site, [*names, "nowhere-to-be-found"])


def imported() -> set[str]:
    """The top-level modules that the program imports, but for those of the PyTorch twin."""
    files = [ROOT / "launch.py", *(ROOT / "memo_jax").rglob("*.py")]
    twin = ("torch_", "weights", "reading")
    files += [f for f in (ROOT / "benchmarks").glob("*.py") if not f.name.startswith(twin)]
    found = {"tensorboardX"}
    for file in files:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                found.add(node.module.partition(".")[0])
    return found - set(sys.stdlib_module_names) - {"memo_jax", "benchmarks", "launch", "configs"}


def plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def with_needs(names: set[str]) -> set[str]:
    """Packages and all that they require, as far as they are installed here."""
    installed = {
        plain(package.name): package.requires or [] for package in metadata.distributions()
    }
    known, waiting = set(), [plain(name) for name in names]
    while waiting:
        name = waiting.pop()
        if name in installed and name not in known:
            known.add(name)
            lines = [line for line in installed[name] if "extra ==" not in line]
            waiting += [plain(re.match(r"[\w.-]+", line)[0]) for line in lines]
    return known


def test_all_that_is_imported_is_looked_for():
    available = with_needs(set(gpu_pack.needed()))
    owners = metadata.packages_distributions()
    for module in imported() - {"tensorflow_datasets", "array_record", "grain", "_codecs"}:
        assert {plain(name) for name in owners[module]} & available, module


def test_what_is_carried_needs_nothing_but_what_is_there():
    there = {"jax", "flax", "optax", "orbax-checkpoint", "matplotlib", "scikit-learn"}
    carried = {plain(name) for name in gpu_pack.CARRIED}
    assert with_needs(carried) <= with_needs(there) | carried
    assert {plain(name) for name in gpu_pack.needed()} <= with_needs(there) | carried


# Command lines ----------------------------------------------------------------------------------


@pytest.fixture
def args(tmp_path):
    """Arguments as the command parses them, and CIFAR-100 with an image a class."""
    spec = dataclasses.replace(cifar100.SPEC, sizes=(100, 100))
    write_official(spec, tmp_path / "work/data")
    made = gpu.parser().parse_args(["run", f"--work={tmp_path / 'work'}"])
    return made


def begin(words: list[str], monkeypatch) -> list[str]:
    """Makes `words` the command line of this process, as if it had not parsed one yet."""
    for name in [name for name in flags.FLAGS if name.startswith("config.")]:
        delattr(flags.FLAGS, name)
    monkeypatch.setattr(sys, "argv", words)
    return words


@pytest.mark.parametrize("rehearse", [False, True])
def test_every_comparison_is_one_that_the_command_knows(args, rehearse, monkeypatch):
    monkeypatch.setattr(settings, "_importable", lambda name: True)
    args.rehearse = rehearse
    found = {}
    for name in gpu.COMPARISONS:
        words = gpu.compare_part(args, name).words
        assert words[:2] == ("-m", "benchmarks.compare")
        argv = ["compare.py", *(word for word in words[2:] if word != "--jax-only")]
        found[name] = settings.parse(begin(argv, monkeypatch), "")
    assert len({wanted.out for wanted in found.values()}) == len(found)
    ways = {tuple(w.speed[k] for k in ("precision", "compile", "loader")) for w in found.values()}
    both = {(p, c, "device") for p in ("float32", "bfloat16") for c in (None, "default")}
    assert ways == both | {("float32", None, "pil")}
    assert not found["published"].speed["channels_last"]
    backbones = {wanted.job.backbone for wanted in found.values()}
    assert backbones == {"resnet8" if rehearse else "resnet32"}


def planned(part: Part, monkeypatch):
    """(config, plan, folder) of a part that starts launch.py."""
    assert part.words[0] == "launch.py"
    launch.parse(begin(list(part.words), monkeypatch))
    config = launch.CONFIG.value
    planning.check(config, 1)
    where = (config.dataset.name, config.dataset.path, config.dataset.source)
    return config, planning.make(config, datasets.load(*where)), launch.WORKDIR.value


def test_the_run_is_the_papers(args, monkeypatch):
    config, plan, workdir = planned(gpu.run_part(args), monkeypatch)
    assert config.method.name == "memo" and config.backbone.name == "resnet32"
    assert len(plan.tasks) == 10 and config.memory.align_to == "der"
    assert sum(plan.schedule(task).epochs for task in plan.tasks) == 1700
    assert {plan.schedule(task).milestones for task in plan.tasks} == {(80, 150)}
    assert workdir == str(args.work / "run")


def test_the_checks_differ_in_nothing_but_what_they_compare(args, monkeypatch):
    found = {}
    for name in gpu.CHECKS:
        config, plan, workdir = planned(gpu.check_part(args, name), monkeypatch)
        assert workdir == str(args.work / name) and len(plan.tasks) == 2
        loop, config.train.loop = config.train.loop, "auto"
        found[name] = loop, config.to_json()
    assert len({config for _, config in found.values()}) == 1
    loops = {name: loop for name, (loop, _) in found.items()}
    assert loops["check-python"] == "python" and loops["check-exact"] == "scan"
    assert gpu.CHECKS["check-exact"] == gpu.CHECKS["check-again"]


# The command -------------------------------------------------------------------------------------


def test_setup_makes_a_machine_ready_and_tells_what_it_found(tmp_path, folder, monkeypatch):
    card = "| a card of this machine |\n" * 40
    (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\ncat <<END\n{card}END\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    wheel(tmp_path / "wheels", "memo_absent", "1.0")
    split(folder, tmp_path / "pack")
    wheels = list((tmp_path / "wheels").iterdir())
    gpu_pack.split(tmp_path / "wheels", wheels, tmp_path / "pack", "wheels", 10**6)
    places = [f"--{name}={tmp_path / name}" for name in ("pack", "work", "out")]
    done = command("setup", *places)  # these tests run on a CPU
    told = one_line(done.stderr)
    assert done.returncode == 1 and "expected JAX on a gpu, found it on 1 x cpu" in told
    assert "--rehearse" in told
    done = command("setup", "--rehearse", *places)
    assert done.returncode == 0, done.stderr
    assert tree(tmp_path / "work/data/cifar-100-python") == tree(folder)
    assert json.loads((tmp_path / "work/machine.json").read_text())["platform"] == "cpu"
    report = (tmp_path / "out/report.md").read_text()
    assert f"jax {metadata.version('jax')}" in report and card in report
    assert "setup: done" in done.stdout and "installed nothing" in done.stdout


# arguments -> what the line must name
MISTAKES = {
    "nothing": ([], ["WHAT"]),
    "unknown": (["chek"], ["'chek'", "did you mean 'check'"]),
    "no time": (["check", "--limit=0"], ["--limit"]),
    "no number": (["check", "--limit=soon"], ["--limit", "soon"]),
    "folder": (["summary", "--out=/dev/null/x"], ["/dev/null/x"]),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_one_line_names_the_mistake(mistake, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    args, named = MISTAKES[mistake]
    assert gpu.main(["gpu.py", *args, f"--work={tmp_path}"]) == 2
    line = one_line(capsys.readouterr().err)
    assert all(word in line for word in named), line


def test_data_that_are_not_there_and_packs_that_are_not_there_are_told(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    args = gpu.parser().parse_args(["pack", f"--data={tmp_path}", f"--pack={tmp_path / 'pack'}"])
    with pytest.raises(UserError, match="cifar-100-python"):
        gpu.pack(args)
    args.work = tmp_path
    with pytest.raises(UserError, match=r"wheels\.json"):
        gpu.setup(args)
