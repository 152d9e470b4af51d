"""The command line of benchmarks.compare: what is measured, checked before any work."""

import argparse
import dataclasses
import importlib.util
import pathlib

import jax
from ml_collections import ConfigDict

import launch
from benchmarks.job import Job
from memo_jax import datasets, planning, study
from memo_jax.backbones import cifar_resnet, convnet, imagenet_resnet
from memo_jax.errors import Parser, UserError, expect_one_of
from memo_jax.planning import Plan

METHODS = ("memo", "der", "replay")
BACKBONES = (*cifar_resnet.BACKBONES, *convnet.BACKBONES, *imagenet_resnet.BACKBONES)
"""Those that the PyTorch twin knows."""


@dataclasses.dataclass(frozen=True)
class Settings:
    """sides: "jax", "torch" or both. repeats: of each short measurement; steps: of training, in
    each of them on a CPU; runs: whole runs per side. speed: benchmarks.torch_training.Speed.
    name: of the config's file. out: the folder of the results.
    """

    config: ConfigDict
    job: Job
    sides: tuple[str, ...]
    repeats: int
    steps: int
    runs: int
    speed: dict
    name: str
    out: pathlib.Path


def command(name: str, description: str) -> argparse.ArgumentParser:
    """The parser of a command of benchmarks that measures a config; it has no arguments yet."""
    return Parser(
        prog=f"python -m benchmarks.{name}",
        description=description,
        usage="%(prog)s --config FILE.py[:METHOD] [--config.x.y=VALUE ...] [options]",
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def parser(description: str) -> argparse.ArgumentParser:
    """The command's arguments, but for --config and --config.x.y=VALUE (launch.py)."""
    made = command("compare", description)
    add = made.add_argument
    add("--tasks", type=int, metavar="N", help="only the first N tasks (default: all)")
    add("--epochs", type=int, metavar="E", help="of every task, milestones in proportion")
    add("--repeats", type=int, default=5, metavar="R", help="of every measurement (5)")
    add("--steps", type=int, default=5, metavar="S", help="training steps in each, on a CPU (5)")
    add("--runs", type=int, default=1, metavar="R", help="whole runs per side, 0 for none (1)")
    add("--out", type=pathlib.Path, metavar="DIR", help="runs/benchmarks/<config>/<method>")
    sides = made.add_mutually_exclusive_group()
    sides.add_argument("--jax-only", action="store_true", help="without PyTorch, as on a TPU")
    sides.add_argument("--torch-only", action="store_true", help="without JAX")
    add("--precision", help="float32 or bfloat16, on both sides (default: the config's)")
    add(
        "--compile",
        nargs="?",
        const="default",
        metavar="MODE",
        help="torch.compile: default, reduce-overhead or max-autotune",
    )
    add("--loader", default="device", help="of PyTorch: device (default) or pil, as published")
    add("--contiguous", action="store_true", help="PyTorch without channels_last")
    return made


def parse(argv: list[str], description: str) -> Settings:
    """The settings of a command line. Raises UserError for what is wrong with it."""
    args, rest = parser(description).parse_known_args(argv[1:])
    file = config_file(argv[0], rest)
    _check(args)
    sides = ("jax",) if args.jax_only else ("torch",) if args.torch_only else ("jax", "torch")
    config = launch.CONFIG.value
    config.precision = args.precision or config.precision
    job = _job(config, args.tasks, args.epochs)
    if "torch" in sides:
        _expect_twin(config, job, args.loader)
    return Settings(
        config=config,
        job=job,
        sides=sides,
        repeats=args.repeats,
        steps=args.steps,
        runs=args.runs,
        speed={
            "channels_last": not args.contiguous,
            "precision": config.precision,
            "compile": args.compile,
            "loader": args.loader,
        },
        name=file.stem,
        out=args.out or pathlib.Path("runs/benchmarks", file.stem, job.method),
    )


def config_file(program: str, words: list[str]) -> pathlib.Path:
    """The file of --config, read into launch.CONFIG with its --config.NAME=VALUE.

    Raises UserError for anything else in `words`, also for what only launch.py knows.
    """
    for word in words:
        if word.startswith("--") and not word.startswith("--config"):
            raise UserError(
                f"unknown option {word.partition('=')[0]}; settings are --config.NAME=VALUE, the "
                f"folder of the results is --out; see --help"
            )
    file = launch.parse([program, *words])
    if study.is_study(launch.CONFIG.value):
        raise UserError(f"{file} is a study; measure one of its experiments")
    return file


def expect_at_least(args: argparse.Namespace, least: dict[str, int]) -> None:
    """Raises UserError for numbers below the least of their name; None is none."""
    for name, bound in least.items():
        value = getattr(args, name)
        if value is not None and value < bound:
            raise UserError(f"--{name}: expected at least {bound}, found {value}")


def _check(args: argparse.Namespace) -> None:
    """Raises UserError for numbers that are too small and names that there are not."""
    expect_at_least(args, {"tasks": 1, "epochs": 1, "repeats": 1, "steps": 1, "runs": 0})
    for name, known in {
        "precision": planning.PRECISIONS,
        "loader": ("device", "pil"),
        "compile": ("default", "reduce-overhead", "max-autotune"),
    }.items():
        if getattr(args, name) is not None:
            expect_one_of(f"--{name}", getattr(args, name), known)


def _job(config: ConfigDict, tasks: int | None, epochs: int | None) -> Job:
    """What the config comes to, cut to so many tasks and epochs; the config gets both."""
    # This process only plans; the accelerator is for those that it starts.
    jax.config.update("jax_platforms", "cpu")
    config.base_from = None
    planning.check(config, num_devices=1)
    dataset = datasets.load(config.dataset.name, config.dataset.path, config.dataset.source)
    plan = planning.make(config, dataset)
    if tasks is not None and tasks > len(plan.tasks):
        raise UserError(f"--tasks: the stream has {len(plan.tasks)} tasks, found {tasks}")
    config.protocol.stop_after = tasks or config.protocol.stop_after
    if epochs is not None:
        _shorten(config, plan, epochs)
    return make_job(config, planning.make(config, dataset))


def make_job(config: ConfigDict, plan: Plan, noise: dict | None = None) -> Job:
    """A config and its plan as a job; `noise` as in Job."""
    return Job(
        dataset={name: config.dataset[name] for name in ("name", "path", "source")},
        class_order_seed=config.protocol.class_order_seed,
        augment=config.dataset.augment,
        backbone=config.backbone.name,
        cut=plan.net.cut,
        grows=plan.net.grows,
        method=plan.method.name,
        options=dataclasses.asdict(plan.options),
        tasks=plan.tasks,
        schedules=tuple(dataclasses.asdict(schedule) for schedule in plan.schedules),
        batch_size=config.schedule.batch_size,
        eval_batch_size=config.train.eval_batch_size,
        exemplars=plan.ledger.exemplars,
        allocation=plan.allocation,
        seed=config.seed,
        noise=noise,
    )


def _shorten(config: ConfigDict, plan: Plan, epochs: int) -> None:
    """Gives every task so many epochs; the rate falls at the same shares of them."""
    for part, schedule in zip(("base", "later"), plan.schedules):
        scaled = {round(m * epochs / schedule.epochs) for m in schedule.milestones}
        config.schedule[f"{part}_epochs"] = epochs
        config.schedule[f"{part}_milestones"] = tuple(sorted(scaled - {0, epochs}))


def _expect_twin(config: ConfigDict, job: Job, loader: str) -> None:
    """Raises UserError unless the PyTorch twin is there and can do this job."""
    needed = {"device": ("torch",), "pil": ("torch", "PIL")}[loader]
    missing = [name for name in needed if not _importable(name)]
    if missing:
        raise UserError(
            f"{' and '.join(missing)} cannot be imported; install requirements-torch.txt, or "
            f"measure without PyTorch: --jax-only"
        )
    for field, found, known in (
        ("backbone.name", job.backbone, BACKBONES),
        ("method.name", job.method, METHODS),
        ("memory.selection", config.memory.selection, ("herding",)),
    ):
        if found not in known:
            raise UserError(
                f"{field}: the PyTorch twin knows {', '.join(known)}, found {found!r}; choose one "
                f"of them or --jax-only"
            )


def _importable(name: str) -> bool:
    return importlib.util.find_spec(name) is not None
