"""What benchmarks.gpu runs: limits that harm nothing else, findings, results to take away."""

import contextlib
import json
import pathlib
import signal
import subprocess
import sys
import tarfile
import time

import pytest

from benchmarks import gpu, gpu_pack, gpu_parts, gpu_report
from benchmarks.gpu_parts import Part

ROOT = pathlib.Path(__file__).parent.parent


def tree(root: pathlib.Path) -> dict[str, bytes]:
    """The content of every file below `root`."""
    files = [path for path in root.rglob("*") if path.is_file()]
    return {str(path.relative_to(root)): path.read_bytes() for path in files}


def test_the_time_limit_of_one_part_leaves_the_others_alone(tmp_path):
    child = "import subprocess, sys; subprocess.run(['sleep', '61.25'])"
    deaf = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf'); {child}"
    saves = (
        "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit("
        "print('saved') or 143)); time.sleep(60)"
    )
    parts = [
        Part("deaf", ("-c", deaf), 4),
        Part("saves", ("-c", saves), 4),
        Part("fails", ("-c", "import nothing_such"), 60),
        Part("quick", ("-c", "import os; print(os.environ['FOUND'])"), 60, {"FOUND": "yes"}),
    ]
    assert not gpu_parts.run_parts(parts, tmp_path, time.monotonic() + 100, at_once=3)
    lines = {line["part"]: line for line in gpu_parts.lines(tmp_path)}
    assert {name: line["code"] for name, line in lines.items()} == {
        "deaf": -signal.SIGKILL,
        "saves": 143,
        "fails": 1,
        "quick": 0,
    }
    assert 4 <= lines["deaf"]["seconds"] < 60 and lines["saves"]["said"] == "saved"
    assert lines["fails"]["said"] == "ModuleNotFoundError: No module named 'nothing_such'"
    assert lines["quick"]["said"] == "yes"
    assert gone("61.25")


def gone(word: str) -> bool:
    """Whether soon no process has `word` in its command line."""
    ends = time.monotonic() + 20
    while time.monotonic() < ends:
        lines = []
        for file in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                lines.append(file.read_bytes())
        if not any(word.encode() in line for line in lines):
            return True
        time.sleep(0.1)
    return False


def test_what_is_done_is_not_done_again_and_without_time_nothing_is_begun(tmp_path):
    add = f"open({str(tmp_path / 'count')!r}, 'a').write('x')"
    once = [Part("once", ("-c", add), 60)]
    assert gpu_parts.run_parts(once, tmp_path, time.monotonic() + 100)
    assert gpu_parts.run_parts(once, tmp_path, time.monotonic() + 100)
    late = [*once, Part("late", ("-c", add), 60)]
    assert not gpu_parts.run_parts(late, tmp_path, time.monotonic() + gpu_parts.LEAST / 2)
    assert (tmp_path / "count").read_text() == "x"


def test_all_at_once_is_at_once_and_what_failed_is_tried_again(tmp_path):
    meet = f"""
import pathlib, sys, time
folder = pathlib.Path({str(tmp_path)!r})
(folder / f"{{sys.argv[1]}}.here").touch()
while len(list(folder.glob("*.here"))) < 3:
    time.sleep(0.02)
"""
    parts = [Part(name, ("-c", meet, name), 60) for name in "abc"]
    assert not gpu_parts.run_parts(parts[:1], tmp_path, time.monotonic() + gpu_parts.LEAST + 0.5)
    assert gpu_parts.run_parts(parts, tmp_path, time.monotonic() + 100, at_once=3)
    assert [line["part"] for line in gpu_parts.lines(tmp_path)].count("a") == 2


def test_when_the_command_is_stopped_it_leaves_results_but_no_process(tmp_path):
    words = [sys.executable, "-m", "benchmarks.gpu", "run", "--rehearse"]
    words += [f"--work={tmp_path / 'work'}", f"--out={tmp_path / 'out'}"]
    process = subprocess.Popen(words, cwd=ROOT)
    log = tmp_path / "work/run.log"
    while not log.exists():
        assert process.poll() is None
        time.sleep(0.02)
    process.terminate()
    assert process.wait(timeout=60) == 143
    assert gone(str(tmp_path))
    assert "| run | killed" in (tmp_path / "out/report.md").read_text()


def write_run(folder: pathlib.Path, loss=1.0, digest="a", accuracy=95.0, devices="1 x GPU", done=2):
    """The results of a run, as far as they are looked at."""
    folder.mkdir(parents=True, exist_ok=True)
    summary = {
        "accuracy": {"head": [99.0, accuracy]},
        "digest": digest,
        "devices": devices,
        "tasks_done": done,
        "num_tasks": 2,
        "seconds": {"total": 3.0},
        "images_per_second": 7.0,
    }
    (folder / "summary.json").write_text(json.dumps(summary))
    lines = [{"loss": loss}, {"loss": loss / 2}]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


# which run is changed, and how -> what the line that finds it must name
FAULTS = {
    "a CPU": ("check-gpu", {"devices": "1 x cpu"}, "cpu"),
    "wrong numbers": ("check-exact", {"loss": 1.0015}, "full precision"),
    "wrong by default": ("check-gpu", {"loss": 0.95}, "TF32"),
    "the loop": ("check-python", {"loss": 0.9985}, "step by step"),
    "not deterministic": ("check-again", {"digest": "b"}, "differently"),
    "learns nothing": ("check-gpu", {"accuracy": 50.0}, "50.0 %"),
    "not finished": ("check-cpu", {"done": 1}, "check-cpu"),
    "no number": ("check-exact", {"loss": float("nan")}, "full precision"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_found(fault, tmp_path):
    for name in gpu.CHECKS:
        write_run(tmp_path / name)
    assert all(good for good, _ in gpu_report.findings(tmp_path, on_gpu=True))
    name, change, named = FAULTS[fault]
    write_run(tmp_path / name, **change)
    wrong = [line for good, line in gpu_report.findings(tmp_path, on_gpu=True) if not good]
    assert any(named in line for line in wrong), wrong


def test_results_are_few_small_files_and_the_run_goes_on_elsewhere(tmp_path):
    work, out = tmp_path / "work", tmp_path / "out"
    out.mkdir()
    write_run(work / "run", done=1)
    for name in ("task_000/a", "task_001/a", "rolling_002_000400/b"):
        (work / "run/checkpoints" / name).parent.mkdir(parents=True)
        (work / "run/checkpoints" / name).write_text(name)
    (work / "float32").mkdir()
    (work / "float32/table.md").write_text("| training step |")
    (work / "data").mkdir()
    (work / "data/train.json").write_text("large")
    gpu_parts.record(work, "float32", 3.2, 0, "a | b")
    gpu_report.write(work, out, state=True)
    report = (out / "report.md").read_text()
    assert "| float32 | done | 3 | a / b |" in report and "| training step |" in report
    assert "1 of 2 tasks" in report and "head: 99.00 95.00 %" in report
    with tarfile.open(out / "results.tar.gz") as archive:
        assert set(archive.getnames()) == {
            "parts.jsonl",
            "run/summary.json",
            "run/metrics.jsonl",
            "float32/table.md",
        }
    gpu_pack.join(out, "state", tmp_path / "elsewhere/run")
    expected = tree(work / "run")
    del expected["checkpoints/task_000/a"]
    assert tree(tmp_path / "elsewhere/run") == expected
