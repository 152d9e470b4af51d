"""Folders of small images, made for the tests of the datasets that are read from files."""

from pathlib import Path

import numpy as np
from PIL import Image


def write_image(path: Path, seed: int, side: int = 12) -> None:
    """Random pixels; the end of the name says in which format."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, (side, side, 3), np.uint8)
    Image.fromarray(pixels).save(path)


def write_folder(root: Path, classes=("ant", "bee", "cat"), train: int = 3, test: int = 2) -> None:
    """`train/CLASS/N.png` and `val/CLASS/N.png`, all of them different."""
    seed = 0
    for split, count in (("train", train), ("val", test)):
        for name in classes:
            for number in range(count):
                write_image(root / split / name / f"{number}.png", seed)
                seed += 1


def write_tinyimagenet(root: Path, classes=("n01", "n02")) -> None:
    """The layout of the archive, two images each."""
    directory, lines = root / "tiny-imagenet-200", []
    for label, name in enumerate(classes):
        for number in range(2):
            seed = 2 * label + number
            file = f"val_{len(classes) * number + label}.JPEG"  # classes by turns
            write_image(directory / "train" / name / "images" / f"{name}_{number}.JPEG", seed, 64)
            write_image(directory / "val" / "images" / file, 100 + seed, 64)
            lines.append(f"{file}\t{name}\t0\t0\t62\t62")
    (directory / "val" / "val_annotations.txt").write_text("\n".join(lines) + "\n")
