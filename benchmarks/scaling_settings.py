"""The command line of benchmarks.scaling, and which values of each axis it comes to."""

import argparse
import dataclasses
import math
import pathlib
from collections.abc import Iterable

import jax

import launch
from benchmarks import settings
from benchmarks.scaling_points import AXES, Point, Stream
from memo_jax.errors import UserError, expect_one_of

VALUES = {
    "blocks": (1, 2, 5, 10, 15, 20),
    "batch": (32, 64, 128, 256, 512),
    "exemplars": (500, 1000, 2000, 5000, 10000, 20000),
    "classes": (10, 100, 1000),
    "devices": (1, 2, 4, 8),
}
ON_CPU = {
    "blocks": (1, 2, 5, 10),
    "batch": (32, 64, 128, 256),
    "exemplars": (500, 2000, 5000, 20000),
    "classes": (10, 100, 1000),
    "devices": (1, 2, 4),
}
"""What is measured where nothing else is asked for; a CPU takes less, to be done in minutes."""
REPEATS = {"cpu": 3, "other": 5}
STEPS = 3
TEST_IMAGES = {"cpu": 1000, "other": 10000}
"""The most images that an evaluation classifies."""


@dataclasses.dataclass(frozen=True)
class Wanted:
    """values: by axis those asked for, None for the usual ones. all_axes: whether no axis was
    named. repeats: None for the usual number. name: of the config's file.
    """

    stream: Stream
    axes: tuple[str, ...]
    all_axes: bool
    values: dict[str, tuple[int, ...] | None]
    steps: int
    repeats: int | None
    name: str
    out: pathlib.Path


@dataclasses.dataclass(frozen=True)
class Agenda:
    """points: by axis, rising; those of the estimate are with the blocks, if there are both.
    left_out: a line for each thing that is not measured, with why.
    """

    points: dict[str, list[Point]]
    repeats: int
    left_out: list[str]


def numbers(text: str) -> tuple[int, ...]:
    """`1,2,5` as rising numbers."""
    try:
        found = sorted(set(map(int, text.split(","))))
    except ValueError:
        found = [0]
    if found[0] < 1:
        raise argparse.ArgumentTypeError(f"expected numbers above 0 such as 1,2,5, found {text!r}")
    return tuple(found)


def parser(description: str) -> argparse.ArgumentParser:
    """The command's arguments, but for --config and --config.x.y=VALUE (launch.py)."""
    made = settings.command("scaling", description)
    add = made.add_argument
    add("--axes", metavar="A,B", help=f"only some of {','.join(AXES)}")
    for axis, usual in VALUES.items():
        shown, less = (",".join(map(str, values)) for values in (usual, ON_CPU[axis]))
        on_cpu = f"; on a CPU {less}" if less != shown else ""
        add(f"--{axis}", type=numbers, metavar="N,M", help=f"({shown}{on_cpu})")
    add("--repeats", type=int, metavar="R", help="of every measurement (5; on a CPU 3)")
    add(
        "--steps", type=int, default=STEPS, metavar="S", help="training steps in each, on a CPU (3)"
    )
    add("--out", type=pathlib.Path, metavar="DIR", help="runs/benchmarks/<config>/scaling")
    return made


def parse(argv: list[str], description: str) -> Wanted:
    """The settings of a command line. Raises UserError for what is wrong with it."""
    args, rest = parser(description).parse_known_args(argv[1:])
    file = settings.config_file(argv[0], rest)
    settings.expect_at_least(args, {"repeats": 1, "steps": 1})
    axes = AXES if args.axes is None else tuple(args.axes.split(","))
    for axis in axes:
        expect_one_of("--axes", axis, AXES)
    for axis in VALUES:
        needed = (axis, "estimate") if axis == "blocks" else (axis,)
        if getattr(args, axis) and not set(needed) & set(axes):
            raise UserError(f"--{axis}: its axis is not among --axes {args.axes}; add it")
    # This process only plans; the accelerator is for those that it starts.
    jax.config.update("jax_platforms", "cpu")
    out = args.out or pathlib.Path("runs/benchmarks", file.stem, "scaling")
    wanted = Wanted(
        stream=Stream.of(launch.CONFIG.value, out),
        axes=axes,
        all_axes=args.axes is None,
        values={axis: getattr(args, axis) for axis in VALUES},
        steps=args.steps,
        repeats=args.repeats,
        name=file.stem,
        out=out,
    )
    for axis, values in wanted.values.items():
        if values:
            _expect_axis(wanted.stream, axis)
            _points(wanted.stream, axis, values)
    return wanted


def settle(wanted: Wanted, about: dict) -> Agenda:
    """What is measured on a device (`about`, of scaling_side.Side).

    Raises UserError for values that were asked for and cannot be; usual ones are left out.
    """
    kind = "cpu" if about["platform"] == "cpu" else "other"
    stream = dataclasses.replace(
        wanted.stream,
        test_images=min(TEST_IMAGES[kind], int(wanted.stream.test_sizes.sum())),
        steps=wanted.steps,
        devices=about["devices"],
        most_devices=math.inf if kind == "cpu" else about["devices"],
        memory_bytes=about["memory_bytes"],
    )
    usual = ON_CPU if kind == "cpu" else VALUES
    points, left_out = {}, []
    for axis, asked in wanted.values.items():
        if axis not in wanted.axes:
            continue
        try:
            _expect_axis(stream, axis)
        except UserError as error:
            if not wanted.all_axes:
                raise
            left_out.append(f"{axis}: {error}")
            continue
        points[axis] = _points(stream, axis, asked or usual[axis], None if asked else left_out)
        more = [str(value) for value in VALUES[axis] if value not in usual[axis]]
        if more and not asked:
            left_out.append(f"{axis} {', '.join(more)}: on a CPU only if --{axis} asks for it")
    if "estimate" in wanted.axes:
        axis = "blocks" if "blocks" in points else "estimate"
        tasks = _estimated(stream, wanted.values["blocks"] or usual["blocks"])
        found = points.get(axis, [])
        tasks -= {point.value for point in found}
        found = [*found, *_points(stream, axis, tasks)]
        points[axis] = sorted(found, key=lambda point: point.value)
    return Agenda(points, wanted.repeats or REPEATS[kind], left_out)


def _estimated(stream: Stream, blocks: Iterable[int]) -> set[int]:
    """The tasks that an estimate is made from: the first two, the last, some between."""
    last = len(stream.plan.tasks)
    between = {number for number in blocks if number <= last} if stream.plan.net.grows else set()
    return {1, min(2, last), last} | between


def _expect_axis(stream: Stream, axis: str) -> None:
    """Raises UserError if the config's method has nothing to measure on an axis."""
    method = stream.plan.method
    if axis == "blocks" and method.grows == "nothing":
        raise UserError(f"{method.name} has one block, whatever the task")
    if axis == "exemplars" and method.keeps != "budget":
        raise UserError(f"{method.name} keeps {method.keeps} of the old images")


def _points(
    stream: Stream, axis: str, values: Iterable[int], left_out: list[str] | None = None
) -> list[Point]:
    """The points at some values; what cannot be is told in `left_out`, or raised without one."""
    made = []
    for value in values:
        try:
            made.append(stream.point(axis, value))
        except UserError as error:
            if left_out is None:
                raise UserError(f"{axis} {value}: {error}") from error
            left_out.append(f"{axis} {value}: {error}")
    return made
