"""How fast images are read from files, decoded, cropped and put on the device, beside torchvision.

    python -m benchmarks.reading --path DIR [--size 224] [--batch 128] [--batches 20] [--workers N]

DIR holds train/CLASS/* and val/CLASS/*. Both sides cut random crops out of whole images, with the
same number of processes, and are measured by turns, start-up apart; images per second. torchvision
is left out where it is not installed.
"""

import statistics
import sys
import time
from collections.abc import Callable, Iterator

import jax
import numpy as np

from memo_jax import datasets, parallel, streaming
from memo_jax.datasets._encoded import num_cores
from memo_jax.errors import Parser, UserError
from memo_jax.order import Order

Start = Callable[[], Iterator[object]]
"""Begins to read; what is drawn from it are batches."""


def main(argv: list[str]) -> int:
    """Prints a line for each side and their ratio; returns the exit code."""
    parser = Parser(prog="python -m benchmarks.reading", description=__doc__.splitlines()[0])
    parser.add_argument("--path", required=True, help="folder of images")
    parser.add_argument("--size", type=int, default=224, help="pixels (224)")
    parser.add_argument("--batch", type=int, default=128, help="images of a batch (128)")
    parser.add_argument("--batches", type=int, default=20, help="that are timed at a time (20)")
    parser.add_argument("--workers", type=int, default=num_cores(), help="processes (all cores)")
    parser.add_argument("--repeats", type=int, default=3, help="turns (3)")
    try:
        args = parser.parse_args(argv)
        sides = {"memo_jax": ours(args), "torchvision": theirs(args)}
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    sides = {name: start for name, start in sides.items() if start}
    speeds = {name: [] for name in sides}
    for _ in range(args.repeats):
        for name, start in sides.items():
            speeds[name].append(args.batch * args.batches / seconds(start(), args.batches))
    for name, found in speeds.items():
        some = f"{min(found):.0f} to {max(found):.0f}"
        print(f"{name}: {statistics.median(found):.0f} images/s ({some}), {args.workers} processes")
    if len(speeds) == 2:
        ratio = np.divide(*map(statistics.median, speeds.values()))
        print(f"memo_jax / torchvision: {ratio:.2f}")
    return 0


def seconds(batches: Iterator[object], count: int) -> float:
    """For so many batches, after as many that only fill what is read ahead."""
    for _ in range(count):
        next(batches)
    began = time.perf_counter()
    for _ in range(count):
        last = next(batches)
    jax.block_until_ready(last)
    took = time.perf_counter() - began
    batches.close()
    return took


def ours(args) -> Start:
    """The feed of a training in which no image is on the device."""
    reading = datasets.Reading(args.size, streaming="always", workers=args.workers)
    images = datasets.load("image_folder", args.path, "local", reading).train.images
    order = Order((0,), len(images), args.batch)
    sharding = parallel.sharded(parallel.data_mesh())

    def start() -> Iterator[jax.Array]:
        steps = range(3 * args.batches)
        with streaming.feed(images, 0, order, steps, (1,), sharding) as batches:
            yield from batches

    return start


def theirs(args) -> Start | None:
    """torchvision's ImageFolder, random resized crop and flip behind a DataLoader."""
    try:
        import torch
        from torchvision import datasets as folders
        from torchvision import transforms
    except ImportError:
        return None
    change = transforms.Compose(
        [
            transforms.RandomResizedCrop(args.size),
            transforms.RandomHorizontalFlip(),
            transforms.PILToTensor(),
        ]
    )
    folder = folders.ImageFolder(f"{args.path}/train", change)

    def start() -> Iterator[torch.Tensor]:
        loader = torch.utils.data.DataLoader(
            folder, args.batch, shuffle=True, num_workers=args.workers, drop_last=False
        )
        while True:
            for images, _ in loader:
                yield images

    return start


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
