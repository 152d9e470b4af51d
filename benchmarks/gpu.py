"""All figures from a GPU machine that has no network, in calls of ten minutes.

  python -m benchmarks.gpu pack --data data              where there is a network: what to carry
  python -m benchmarks.gpu setup check --out OUT         there: unpacks, installs, checks the GPU
  python -m benchmarks.gpu float32 bfloat16 --out OUT    two comparisons; `compare`: all of them
  python -m benchmarks.gpu run --out OUT --state         goes on with the paper's run
  python -m benchmarks.gpu summary --out OUT             what there is so far

Whatever is named is done in this order. What is done already is not done again: the same command
goes on where the last one was stopped. A part that fails or runs out of time leaves the others
alone, and --out gets all results so far at the end of every call.
"""

import argparse
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks import gpu_pack, gpu_parts, gpu_report
from benchmarks.gpu_parts import Part
from memo_jax.errors import Parser, UserError, expect_one_of

ROOT = Path(__file__).parent.parent
MB = 10**6
CHECK_SHARE, COMPARISON_SHARE = 1 / 3, 1 / 2
"""Of a call's time, that one part may take."""

EXACT = {"JAX_DEFAULT_MATMUL_PRECISION": "highest", "XLA_FLAGS": "--xla_gpu_deterministic_ops=true"}
CHECKS = {
    "check-gpu": ((), {}),
    "check-exact": (("--config.train.loop=scan",), EXACT),
    "check-again": (("--config.train.loop=scan",), EXACT),
    "check-python": (("--config.train.loop=python",), EXACT),
    "check-cpu": ((), {"JAX_PLATFORMS": "cpu"}),
}
"""Two tasks of digits each; gpu_report.findings says what must agree."""
SHORT = [
    f"--config.schedule.{part}_{name}"
    for part in ("base", "later")
    for name in ("epochs=4", "milestones=(3,)")
]
COMPARISONS = {
    "float32": ("--tasks=3", "--runs=1"),
    "bfloat16-compile": ("--tasks=3", "--runs=0", "--precision=bfloat16", "--compile"),
    "published": ("--tasks=2", "--runs=0", "--loader=pil", "--contiguous"),
    "bfloat16": ("--tasks=3", "--runs=0", "--precision=bfloat16"),
    "float32-compile": ("--tasks=3", "--runs=0", "--compile"),
}
"""Those that tell most come first; `published` loads images as the published code does."""
TINY = ("--config.backbone.name=resnet8", "--config.checkpoints.every_epochs=1")
REHEARSAL = {
    "compare": (*TINY, "--tasks=2", "--epochs=1", "--repeats=1", "--steps=1"),
    "run": (*TINY, "--config.protocol.stop_after=2", *SHORT),
}
CPU = {"JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": ""}

PROBE = """
import json, platform, shutil, subprocess
from importlib import metadata
import jax, matplotlib, tensorboardX, benchmarks.compare, memo_jax.experiment
packages = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy", "ml-collections")
versions = {name: metadata.version(name) for name in packages}
device = f"{jax.device_count()} x {jax.devices()[0].device_kind}"
smi = subprocess.getoutput("nvidia-smi") if shutil.which("nvidia-smi") else ""
print(json.dumps({"platform": jax.default_backend(), "device": device, "nvidia_smi": smi,
                  "versions": {"python": platform.python_version(), **versions}}))
"""


def parser() -> argparse.ArgumentParser:
    """The command's arguments."""
    made = Parser(
        prog="python -m benchmarks.gpu",
        description=__doc__,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = made.add_argument
    add("what", nargs="+", metavar="WHAT", help=", ".join(STAGES))
    add("--pack", type=Path, default=ROOT / "runs/gpu-pack", metavar="DIR", help="what is carried")
    add("--work", type=Path, metavar="DIR", help="all that is made (runs/gpu)")
    add("--out", type=Path, metavar="DIR", help="gets report.md and results.tar.gz")
    add("--state", action="store_true", help="--out also gets the run, for another machine's pack")
    add("--limit", type=float, default=540, metavar="S", help="seconds of this call (540)")
    add("--rehearse", action="store_true", help="the same on a CPU, with a tiny network")
    add("--data", type=Path, default=Path("data"), help="pack: folder with cifar-100-python (data)")
    add("--part-mb", type=float, default=60, metavar="MB", help="pack: most in one file (60)")
    return made


def _parse(argv: list[str]) -> argparse.Namespace:
    args = parser().parse_args(argv[1:])
    for word in args.what:
        expect_one_of("WHAT", word, STAGES)
    if not (args.limit > 0 and args.part_mb > 0):
        raise UserError("--limit and --part-mb: expected more than 0")
    args.work = args.work or ROOT / ("runs/gpu-rehearsal" if args.rehearse else "runs/gpu")
    args.pack, args.work = args.pack.absolute(), args.work.absolute()
    try:
        for folder in filter(None, (args.work, args.out)):
            folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{error.filename} cannot be written to ({error.strerror})") from error
    return args


def main(argv: list[str]) -> int:
    """Does what is named; returns 0 if all of it is done, 1 if not all, 2 for bad input."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(gpu_parts.STOPPED))
    began = time.monotonic()
    try:
        args = _parse(argv)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    args.ends = began + args.limit
    paths = [str(args.work / "site"), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    os.environ.update(CPU if args.rehearse else {})
    try:
        return 0 if all([_attempt(word, args) for word in args.what]) else 1
    finally:
        if args.out:
            gpu_report.write(args.work, args.out, args.state)


def _attempt(word: str, args: argparse.Namespace) -> bool:
    """Does one thing; if it fails, the others are left alone."""
    try:
        return STAGES[word](args)
    except UserError as error:
        print(f"error: {word}: {error}", file=sys.stderr, flush=True)
        return False


def pack(args: argparse.Namespace) -> bool:
    """Fills --pack with data.00 ... and wheels.00."""
    from memo_jax import datasets

    datasets.load("cifar100", str(args.data), "local")  # tells whatever is wrong with it
    inside = args.data / "cifar-100-python"
    folder = inside if inside.is_dir() else args.data
    size = int(args.part_mb * MB)
    made = gpu_pack.split(folder, folder.iterdir(), args.pack, "data", size)
    with tempfile.TemporaryDirectory() as wheels:
        gpu_pack.download(Path(wheels))
        made += gpu_pack.split(Path(wheels), Path(wheels).iterdir(), args.pack, "wheels", size)
    for part in made:
        print(f"{part}: {part.stat().st_size / MB:.1f} MB")
    print("carry them there, with the lists beside them (data.json, wheels.json)")
    return True


def setup(args: argparse.Namespace) -> bool:
    """Unpacks and installs what was carried; looks at packages and device."""
    began, wheels = time.monotonic(), args.work / "wheels"
    gpu_pack.join(args.pack, "wheels", wheels)
    installed = gpu_pack.install(wheels, args.work / "site", gpu_pack.needed())
    found = _probe("cpu" if args.rehearse else "gpu")
    (args.work / "machine.json").write_text(json.dumps(found, indent=2) + "\n")
    if (args.pack / "state.json").exists():
        gpu_pack.join(args.pack, "state", args.work / "run")
    gpu_pack.join(args.pack, "data", args.work / "data/cifar-100-python")
    said = f"{found['device']}; installed {', '.join(installed) or 'nothing'}"
    gpu_parts.record(args.work, "setup", time.monotonic() - began, 0, said)
    return True


def _probe(expected: str) -> dict:
    """Device and versions. Raises UserError unless all can be imported and the device is right."""
    command = [sys.executable, "-c", PROBE]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=180)
    except subprocess.TimeoutExpired as error:
        raise UserError("importing JAX took more than 180 s; look at nvidia-smi") from error
    if done.returncode:
        raise UserError(f"the program cannot be imported: {gpu_pack.last_line(done.stderr)}")
    found = json.loads(done.stdout.splitlines()[-1])
    if found["platform"] != expected:
        raise UserError(
            f"expected JAX on a {expected}, found it on {found['device']}; install "
            f"requirements-cuda13.txt, or rehearse on a CPU with --rehearse"
        )
    return found


def check(args: argparse.Namespace) -> bool:
    """Short runs of digits, all at once; what must agree is looked at afterwards."""
    parts = [check_part(args, name) for name in CHECKS]
    gpu_parts.run_parts(parts, args.work, args.ends, at_once=len(parts))
    findings = gpu_report.findings(args.work, on_gpu=not args.rehearse)
    (args.work / "check.json").write_text(json.dumps({"findings": findings}, indent=2) + "\n")
    for good, found in findings:
        print(f"{'ok' if good else 'NOT AS EXPECTED'}: {found}", flush=True)
    return all(good for good, _ in findings)


def check_part(args: argparse.Namespace, name: str) -> Part:
    """A run of CHECKS."""
    more, env = CHECKS[name]
    config = ("--config=configs/digits_b0i2.py", "--config.protocol.stop_after=2", *SHORT)
    words = ("launch.py", *config, *more, f"--workdir={args.work / name}")
    # They share the GPU: none may take all of its memory.
    return Part(
        name, words, args.limit * CHECK_SHARE, {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", **env}
    )


def compare_part(args: argparse.Namespace, name: str) -> Part:
    """A comparison of COMPARISONS; without PyTorch it measures JAX alone."""
    words = ("-m", "benchmarks.compare", *_cifar(args), "--epochs=2", "--repeats=5")
    words += (*COMPARISONS[name], f"--out={args.work / name}")
    words += () if importlib.util.find_spec("torch") else ("--jax-only",)
    words += REHEARSAL["compare"] if args.rehearse else ()
    return Part(name, words, args.limit * COMPARISON_SHARE)


def run_part(args: argparse.Namespace) -> Part:
    """The paper's run, 1,700 epochs, in all the time there is."""
    words = ("launch.py", *_cifar(args), f"--workdir={args.work / 'run'}")
    return Part("run", words + (REHEARSAL["run"] if args.rehearse else ()), args.limit)


def _cifar(args: argparse.Namespace) -> tuple[str, ...]:
    return "--config=configs/cifar_b0i10.py", f"--config.dataset.path={args.work / 'data'}"


def _compare(*names: str) -> Callable[[argparse.Namespace], bool]:
    """Does these comparisons, one after the other."""

    def measure(args: argparse.Namespace) -> bool:
        parts = [compare_part(args, name) for name in names]
        return gpu_parts.run_parts(parts, args.work, args.ends)

    return measure


STAGES = {
    "pack": pack,
    "setup": setup,
    "check": check,
    "compare": _compare(*COMPARISONS),
    **{name: _compare(name) for name in COMPARISONS},
    "run": lambda args: gpu_parts.run_parts([run_part(args)], args.work, args.ends),
    "summary": lambda args: True,
}


if __name__ == "__main__":
    sys.exit(main(sys.argv))
