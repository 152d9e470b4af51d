"""Memory of methods at equal budgets: exemplars, parameters, megabytes (2**20 bytes).

python -m memo_jax budget --setting cifar100/b0i10
python -m memo_jax budget --setting cifar100/b0i10 --method memo --backbone resnet32 --align-to der
python -m memo_jax budget --setting mine/b10i5 --classes 60 --image 96x96x3 --backbone resnet18
python -m memo_jax budget --paper
"""

import argparse
import dataclasses
import json
import re

from memo_jax import memory_plan, methods, paper, protocol
from memo_jax.budget import Ledger
from memo_jax.errors import UserError, expect_one_of
from memo_jax.memory_plan import Budget, Stream

HELP = "exemplars, parameters and megabytes of methods at equal memory; the paper's tables"
METHODS = ("replay", "icarl", "wa", "der", "memo")
"""The five methods of the paper, in the order of its tables."""


@dataclasses.dataclass(frozen=True)
class Facts:
    """A dataset as far as memory goes, and what the paper uses with it.

    num_images, num_test: of training and for tests; None where that is not known.
    """

    num_classes: int
    image_shape: tuple[int, int, int]
    num_images: int | None
    backbone: str
    base_exemplars: int = 2000
    num_test: int | None = None


DATASETS = {
    "cifar10": Facts(10, (32, 32, 3), 50_000, "resnet32", num_test=10_000),
    "cifar100": Facts(100, (32, 32, 3), 50_000, "resnet32", num_test=10_000),
    "digits": Facts(10, (8, 8, 1), 1_442, "resnet8", num_test=355),
    "tinyimagenet": Facts(200, (64, 64, 3), 100_000, "resnet18", num_test=10_000),
    "imagenet100": Facts(100, (224, 224, 3), None, "resnet18", num_test=5_000),
    "imagenet100_first100": Facts(100, (224, 224, 3), None, "resnet18", num_test=5_000),
    "imagenet1000": Facts(1000, (224, 224, 3), 1_281_167, "resnet18", 20_000, num_test=50_000),
}


ONLY_FOR_A_SETTING = ("setting", "method", "backbone", "align_to", "base_exemplars", "total_mb")
ONLY_FOR_A_SETTING += ("exemplars", "classes", "image", "images")
SPARED = {"vgg8": 412, "inception_v3": 2512}
"""Exemplars that MEMO gains on DER with these backbones, as the paper prints them."""


@dataclasses.dataclass(frozen=True)
class Row:
    """One method under one budget; paper_exemplars is what the paper prints, if it does."""

    setting: str
    point: str
    method: str
    backbone: str
    ledger: Ledger
    paper_exemplars: int | None

    @property
    def agrees(self) -> bool:
        return self.paper_exemplars in (None, self.ledger.exemplars)

    def as_dict(self) -> dict:
        return {
            "setting": self.setting,
            "point": self.point,
            "method": self.method,
            "backbone": self.backbone,
            **self.ledger.as_dict(),
            "paper_exemplars": self.paper_exemplars,
        }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    add = parser.add_argument
    add("--setting", metavar="DATASET/bXiY", help="as cifar100/b0i10: X base classes, Y per task")
    add("--method", nargs="+", metavar="NAME", help="default: the paper's five")
    add("--backbone", metavar="NAME", help="default: the paper's for the dataset")
    add("--cut", default="memo", metavar="NAME", help="where trunk ends and block begins")
    add("--align-to", metavar="METHOD[:BACKBONE]", help="whose memory is matched (default: der)")
    add("--base-exemplars", type=int, metavar="N", help="exemplars of the method aligned to")
    add("--total-mb", type=float, metavar="MB", help="fill up so many megabytes instead")
    add("--exemplars", type=int, metavar="N", help="keep so many exemplars instead")
    add("--classes", type=int, metavar="K", help="number of classes of another dataset")
    add("--image", metavar="HxWxC", help="image shape, to change it or for another dataset")
    add("--images", type=int, metavar="N", help="number of training images, for joint")
    add("--paper", action="store_true", help="the paper's 17 tables, ours beside the paper's")
    add("--json", action="store_true", help="print a JSON list of rows")


def run(args: argparse.Namespace) -> None:
    """Prints the rows that were asked for. Raises UserError for what does not fit."""
    if args.paper:
        given = [f"--{n.replace('_', '-')}" for n in ONLY_FOR_A_SETTING if getattr(args, n)]
        if given:
            raise UserError(f"--paper prints whole tables; leave out {', '.join(given)}")
        rows = paper_rows()
    elif args.setting:
        rows = rows_of(args)
    else:
        raise UserError("expected --setting DATASET/bXiY or --paper; see budget --help")
    if args.json:
        print(json.dumps([row.as_dict() for row in rows], indent=2))
    else:
        print("\n".join(_as_text(rows)))
        if args.paper:
            print("\n".join(_paper_notes(rows)))


def rows_of(args: argparse.Namespace) -> list[Row]:
    """The rows of one setting."""
    _check_numbers(args)
    facts, stream = _setting(args)
    backbone = args.backbone or facts.backbone
    align_to = args.align_to or "der"
    base = facts.base_exemplars if args.base_exemplars is None else args.base_exemplars
    wish = Budget(args.exemplars, args.total_mb, align_to, base)
    tables, point = paper.memory_tables(), f"aligned_to_{align_to}"
    if args.exemplars:
        point = f"{args.exemplars} exemplars"
    elif args.total_mb:
        point = f"{args.total_mb:g}"
    table = None
    own = (args.classes, args.image, args.base_exemplars, args.exemplars, args.total_mb)
    if args.cut == "memo" and not any(own):
        table = next((t for t in tables if (t.setting, t.point) == (args.setting, point)), None)
    return [
        _row(args.setting, point, name, backbone, args.cut, stream, wish, table)
        for name in args.method or METHODS
    ]


def _check_numbers(args: argparse.Namespace) -> None:
    """Raises UserError for more than one budget and for numbers that are none."""
    budgets = {"--align-to": args.align_to, "--total-mb": args.total_mb}
    budgets |= {"--exemplars": args.exemplars}
    given = [name for name, value in budgets.items() if value is not None]
    if len(given) > 1:
        raise UserError(f"expected one budget, found {' and '.join(given)}")
    numbers = {"--classes": args.classes, "--images": args.images}
    numbers |= {"--base-exemplars": args.base_exemplars, **budgets}
    for name, value in numbers.items():
        if isinstance(value, int | float) and not 0 < value < float("inf"):
            raise UserError(f"{name}: expected a number above 0, found {value}")


def _parts(setting: str) -> tuple[str, int, int]:
    """Dataset, base and increment of `DATASET/bXiY`."""
    match = re.fullmatch(r"(.+)/b(\d+)i(\d+)", setting)
    if not match:
        raise UserError(
            f"--setting: expected DATASET/bXiY such as cifar100/b0i10, found {setting!r}"
        )
    return match[1], int(match[2]), int(match[3])


def _setting(args: argparse.Namespace) -> tuple[Facts, Stream]:
    """The dataset's facts with the user's own put in, and the stream of tasks they make."""
    name, base, increment = _parts(args.setting)
    if name not in DATASETS and not (args.classes and args.image and args.backbone):
        try:
            expect_one_of("--setting", name, DATASETS)
        except UserError as error:
            raise UserError(
                f"{error}; for another dataset add --classes, --image, --backbone"
            ) from error
    facts = DATASETS.get(name) or Facts(0, (0, 0, 0), None, "")
    shape = facts.image_shape
    if args.image:
        sides = re.fullmatch(r"([1-9]\d*)x([1-9]\d*)x([1-9]\d*)", args.image)
        if not sides:
            raise UserError(f"--image: expected HxWxC such as 64x64x3, found {args.image!r}")
        shape = tuple(map(int, sides.groups()))
    num_classes = facts.num_classes if args.classes is None else args.classes
    num_images = facts.num_images if args.images is None else args.images
    tasks = protocol.split(num_classes, base, increment)
    return facts, Stream(shape, num_classes, len(tasks), num_images)


def _row(
    setting: str,
    point: str,
    method: str,
    backbone: str,
    cut: str,
    stream: Stream,
    wish: Budget,
    table: paper.MemoryTable | None,
) -> Row:
    """The row of a method; `table` is the paper's of this setting and budget, if it has one."""
    found = memory_plan.ledger(methods.get(method, "--method"), backbone, cut, stream, wish)
    entry = table.rows.get(method) if table else None
    printed = entry["exemplars"] if entry and entry["backbone"] == backbone else None
    return Row(setting, point, method, backbone, found, printed)


def paper_rows() -> list[Row]:
    """Every entry of the paper's 17 tables, computed.

    In each table the method with the most parameters keeps the base number of exemplars, and the
    others are aligned to it.
    """
    rows = []
    for table in paper.memory_tables():
        facts, stream = _facts_of_paper(table.setting)
        entries = {m: entry["backbone"] for m, entry in table.rows.items()}
        largest = max(
            entries,
            key=lambda m: memory_plan.parameters(
                methods.get(m), entries[m], "memo", stream.image_shape, stream.num_tasks
            ),
        )
        wish = Budget(align_to=f"{largest}:{entries[largest]}", base_exemplars=facts.base_exemplars)
        rows += [
            _row(table.setting, table.point, m, backbone, "memo", stream, wish, table)
            for m, backbone in entries.items()
        ]
    return rows


def _facts_of_paper(setting: str) -> tuple[Facts, Stream]:
    """The dataset's facts and the stream of one of the paper's settings."""
    name, base, increment = _parts(setting)
    facts = DATASETS[name]
    num_tasks = len(protocol.split(facts.num_classes, base, increment))
    return facts, Stream(facts.image_shape, facts.num_classes, num_tasks, facts.num_images)


def _as_text(rows: list[Row]) -> list[str]:
    """A table for people; entries that the paper prints otherwise are marked with a star."""
    lines, shown = [], None
    for row in rows:
        if (row.setting, row.point) != shown:
            shown = row.setting, row.point
            lines += ["", f"{row.setting}, {_heading(row.point)}"]
            lines.append(
                f"  {'method':9}{'backbone':18}{'exemplars':>10}{'paper':>8} {'MB':>9}"
                f"{'parameters':>13}{'MB':>9}{'total MB':>10}"
            )
        ledger = row.ledger
        printed = "" if row.paper_exemplars is None else str(row.paper_exemplars)
        lines.append(
            f"  {row.method:9}{row.backbone:18}{ledger.exemplars:10}{printed:>8}"
            f"{' ' if row.agrees else '*'}{ledger.exemplar_mb:9.2f}"
            f"{ledger.parameters:13,}{ledger.model_mb:9.2f}{ledger.total_mb:10.2f}"
        )
    return lines[1:]


def _paper_notes(rows: list[Row]) -> list[str]:
    """Which entries of the paper are off its own formula; one may stand in two of its tables."""
    entries: dict[tuple, dict[str, list]] = {}
    for row in rows:
        if not row.agrees:
            key = row.setting, row.paper_exemplars, row.ledger.exemplars
            entry = entries.setdefault(key, {"points": [], "methods": []})
            for name, value in (("points", _heading(row.point)), ("methods", row.method)):
                if value not in entry[name]:
                    entry[name].append(value)
    lines = ["", f"* {len(entries)} entries of the paper are off its own formula:"]
    for (setting, printed, ours), entry in entries.items():
        lines.append(
            f"    {setting}, {' and '.join(entry['points'])}, {', '.join(entry['methods'])}: "
            f"printed {printed}, formula {ours}"
        )
    lines += ["", "MEMO beside DER in imagenet100/b50i5 with two more backbones of the paper:"]
    facts, stream = _facts_of_paper("imagenet100/b50i5")
    for backbone, printed in SPARED.items():
        held = memory_plan.ledger(methods.get("memo"), backbone, "memo", stream, Budget())
        ours = held.exemplars - facts.base_exemplars
        lines.append(f"    {backbone}: {ours} exemplars more, printed {printed}")
    return lines


def _heading(point: str) -> str:
    """A point in words: a curve's are megabytes."""
    return f"{point} MB" if re.fullmatch(r"[\d.]+", point) else point.replace("_", " ")
