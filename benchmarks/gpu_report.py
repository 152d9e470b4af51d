"""What the checks on a GPU machine found, and all results in few small files."""

import json
import tarfile
from pathlib import Path

from benchmarks import gpu_pack, gpu_parts

AGREES, ROUGHLY, LEARNS = 3e-4, 1e-2, 80.0
"""Relative differences of the first epoch's loss: in float32 (on a CPU another order of sums makes
5e-6, bfloat16 1.5e-3) and with products rounded to TF32. Percent."""
KEPT = {".json", ".jsonl", ".md", ".png", ".npz", ".log", ".txt"}
NOT_KEPT = {"site", "wheels", "data", "checkpoints", "tensorboard"}
STATE_BYTES = 15 * 10**6


def findings(work: Path, on_gpu: bool) -> list[tuple[bool, str]]:
    """Whether each thing is as it should be, and what was found, from the runs of gpu.CHECKS."""
    names = ("gpu", "exact", "again", "python", "cpu")
    runs = [_result(work / f"check-{name}") for name in names]
    lost = [f"check-{name}" for name, run in zip(names, runs) if run is None]
    if lost:
        return [(False, f"no result of {', '.join(lost)}; see their .log")]
    gpu, exact, again, python, cpu = runs
    accuracy, device = gpu["accuracy"]["head"][-1], gpu["devices"]
    same = exact["digest"] == again["digest"]
    return [
        (not on_gpu or not device.endswith("cpu"), f"computed on {device}"),
        _compared("float32 in full precision beside a CPU", exact, cpu, AGREES),
        _compared("float32 as it is by default (TF32) beside a CPU", gpu, cpu, ROUGHLY),
        _compared("a scan per epoch beside step by step", exact, python, AGREES),
        (same, f"two deterministic runs end {'bit-equal' if same else 'differently'}"),
        (accuracy > LEARNS, f"accuracy after two tasks {accuracy:.1f} %, at least {LEARNS:.0f}"),
    ]


def _result(folder: Path) -> dict | None:
    """summary.json with the mean loss of the very first epoch, if that run has finished."""
    try:
        summary = json.loads((folder / "summary.json").read_text())
        first = json.loads((folder / "metrics.jsonl").read_text().splitlines()[0])
        finished = summary["tasks_done"] == summary["num_tasks"]
        return {**summary, "loss": first["loss"]} if finished else None
    except (OSError, ValueError, LookupError):
        return None


def _compared(what: str, one: dict, other: dict, most: float) -> tuple[bool, str]:
    difference = abs(one["loss"] / other["loss"] - 1)
    return difference <= most, f"{what}: losses differ by {difference:.1e}, at most {most:.0e}"


def write(work: Path, out: Path, state: bool) -> None:
    """out/report.md to read and out/results.tar.gz with all but data, packages and checkpoints.

    state: also the run with its last checkpoint, as parts that `setup` takes up elsewhere.
    """
    (out / "report.md").write_text(report(work))
    with tarfile.open(out / "results.tar.gz", "w:gz") as archive:
        for file in sorted(work.rglob("*")):
            name = file.relative_to(work)
            if file.suffix in KEPT and not NOT_KEPT & set(name.parts):
                archive.add(file, name)
    run = work / "run"
    if state and run.is_dir():
        old = set(sorted(run.glob("checkpoints/task_???"))[:-1])
        files = [f for f in run.rglob("*") if f.is_file() and not old & set(f.parents)]
        gpu_pack.split(run, files, out, "state", STATE_BYTES)


def report(work: Path) -> str:
    """Machine, parts, checks, tables and the run, in Markdown."""
    machine = _read(work / "machine.json")
    versions = ", ".join(f"{name} {of}" for name, of in machine.get("versions", {}).items())
    text = [f"# On {machine.get('device', 'a machine that setup has not seen')}", versions, ""]
    text += ["| part | how it went | seconds | what it said |", "|---|---|--:|---|"]
    for line in gpu_parts.lines(work):
        said = line["said"].replace("|", "/")
        text.append(f"| {line['part']} | {line['outcome']} | {line['seconds']:.0f} | {said} |")
    text.append("")
    for good, found in _read(work / "check.json").get("findings", []):
        text.append(f"- {'ok' if good else 'NOT AS EXPECTED'}: {found}")
    for table in sorted(work.glob("*/table.md")):
        text += ["", f"## {table.parent.name}", "", table.read_text()]
    run = _read(work / "run/summary.json")
    if run:
        text += ["", "## run", "", f"{run['tasks_done']} of {run['num_tasks']} tasks"]
        text += [
            f"- {rule}: {' '.join(f'{value:.2f}' for value in values)} %"
            for rule, values in run["accuracy"].items()
        ]
        seconds = ", ".join(f"{phase} {value:.0f} s" for phase, value in run["seconds"].items())
        text.append(f"- {seconds}; {run['images_per_second']:.0f} images/s in training")
    return "\n".join([*text, "", "```", machine.get("nvidia_smi", ""), "```", ""])


def _read(path: Path) -> dict:
    return json.loads(path.read_text()) if path.exists() else {}
