"""Where PyTorch's batches come from: bytes on the device, or PIL images through a DataLoader."""

import os
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

BRIGHTNESS = 63 / 255
WORKERS = 8
"""Processes that read images in the published code."""


class Images(NamedTuple):
    """images uint8 `[N, H, W, C]` and labels int64 `[N]`, where the loader wants them."""

    images: Tensor
    labels: Tensor

    def at(self, rows: np.ndarray | Tensor) -> "Images":
        """Those at `rows` int `[n]`."""
        rows = torch.as_tensor(rows, device=self.labels.device)
        return Images(self.images[rows], self.labels[rows])


def random_crop(images: Tensor, padding: int) -> Tensor:
    """Pads `[B, H, W, C]` with zeros by `padding` and crops each image back at a random place."""
    batch, height, width, _ = images.shape
    device, places = images.device, 2 * padding + 1
    padded = functional.pad(images, (0, 0, padding, padding, padding, padding))
    corners = torch.randint(places, (2, batch, 1), device=device)
    rows = corners[0] + torch.arange(height, device=device)
    columns = corners[1] + torch.arange(width, device=device)
    image = torch.arange(batch, device=device)
    return padded[image[:, None, None], rows[:, :, None], columns[:, None, :]]


def random_flip(images: Tensor) -> Tensor:
    """Mirrors each of `[B, H, W, C]` left-right with probability one half."""
    flips = torch.rand(len(images), 1, 1, 1, device=images.device) < 0.5
    return torch.where(flips, images.flip(2), images)


def random_brightness(images: Tensor) -> Tensor:
    """Scales each of `[B, H, W, C]` at 0..1 by U(1 - 63/255, 1 + 63/255) and clips to 0..1."""
    factors = torch.empty(len(images), 1, 1, 1, device=images.device)
    return (images * factors.uniform_(1 - BRIGHTNESS, 1 + BRIGHTNESS)).clamp_(0, 1)


def to_float(images: Tensor) -> Tensor:
    """uint8 0..255 -> float32 0..1."""
    return images.float() / 255


def cifar(images: Tensor) -> Tensor:
    """Pad 4 and crop, flip, brightness."""
    return random_brightness(to_float(random_flip(random_crop(images, 4))))


AUGMENTATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "none": to_float,
    "shift": lambda images: to_float(random_crop(images, 1)),
    "cifar": cifar,
}
"""As memo_jax/augment.py: uint8 `[B, H, W, C]` -> float32 at 0..1."""


class DeviceLoader:
    """Images live on the device as bytes; a batch is gathered and augmented there."""

    def __init__(self, augment: str, mean, std, device: torch.device, channels_last: bool = True):
        self.device, self._change = device, AUGMENTATIONS[augment]
        self._mean, self._std = torch.tensor(mean).to(device), torch.tensor(std).to(device)
        self._channels_last = channels_last

    def place(self, images: np.ndarray, labels: np.ndarray) -> Images:
        """uint8 `[N, H, W, C]` and int `[N]` of the host, put where batches are made."""
        images, labels = torch.as_tensor(images), torch.as_tensor(labels, dtype=torch.int64)
        return Images(images.to(self.device), labels.to(self.device))

    def epoch(self, pool: Images, batch: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Augmented batches `[B, C, H, W]` and their labels; every image once, in random order."""
        for rows in torch.randperm(len(pool.labels), device=self.device).split(batch):
            yield self._finish(self._change(pool.images[rows])), pool.labels[rows]

    def plain(self, data: Images, batch: int) -> Iterator[tuple[Tensor, Tensor]]:
        """The images as they are, in order."""
        for images, labels in zip(data.images.split(batch), data.labels.split(batch)):
            yield self._finish(to_float(images)), labels

    def _finish(self, images: Tensor) -> Tensor:
        # In memory [B, H, W, C] is what PyTorch calls channels_last: nothing is copied.
        images = ((images - self._mean) / self._std).permute(0, 3, 1, 2)
        return images if self._channels_last else images.contiguous()


class PilLoader:
    """As the published code: every image becomes a PIL image and is transformed on its own.

    Worker processes do it, as many as the published code's eight if there are CPUs for them.
    """

    def __init__(self, augment: str, mean, std, device: torch.device, channels_last: bool = True):
        self.device, self._settings = device, (augment, mean, std)
        self._format = torch.channels_last if channels_last else torch.contiguous_format
        self._workers = min(WORKERS, len(os.sched_getaffinity(0)))

    def place(self, images: np.ndarray, labels: np.ndarray) -> Images:
        """uint8 `[N, H, W, C]` and int `[N]`, which stay on the host."""
        return Images(torch.as_tensor(images), torch.as_tensor(labels, dtype=torch.int64))

    def epoch(self, pool: Images, batch: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Augmented batches `[B, C, H, W]` and their labels; every image once, in random order."""
        augment, mean, std = self._settings
        return self._batches(PilImages(pool, augment, mean, std), batch, shuffle=True)

    def plain(self, data: Images, batch: int) -> Iterator[tuple[Tensor, Tensor]]:
        """The images as they are, in order."""
        _, mean, std = self._settings
        return self._batches(PilImages(data, "none", mean, std), batch, shuffle=False)

    def _batches(self, images: "PilImages", batch: int, shuffle: bool):
        loader = DataLoader(images, batch, shuffle, num_workers=self._workers)
        for batch_images, labels in loader:
            batch_images = batch_images.to(self.device, memory_format=self._format)
            yield batch_images, labels.to(self.device)


class PilImages(Dataset):
    """Transformed images `[C, H, W]`, float32, and labels, one at a time."""

    def __init__(self, data: Images, augment: str, mean, std):
        self._images, self._labels = data.images.numpy(), data.labels.numpy()
        self._augment = augment
        self._mean, self._std = (torch.tensor(values).view(-1, 1, 1) for values in (mean, std))

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        from PIL import Image

        pixels = self._images[index]
        image = Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels)
        pixels = np.asarray(pil_augment(image, self._augment), np.uint8).reshape(pixels.shape)
        image = torch.from_numpy(pixels.copy()).permute(2, 0, 1).float() / 255
        return (image - self._mean) / self._std, int(self._labels[index])


def pil_augment(image, augment: str):
    """The augmentation of one PIL image; brightness is cut to 8 bits, as published."""
    from PIL import ImageEnhance, ImageOps

    padding = {"none": 0, "shift": 1, "cifar": 4}[augment]
    if padding:
        left, top = torch.randint(2 * padding + 1, (2,)).tolist()
        padded = ImageOps.expand(image, border=padding, fill=0)
        image = padded.crop((left, top, left + image.width, top + image.height))
    if augment == "cifar":
        if torch.rand(()) < 0.5:
            image = ImageOps.mirror(image)
        factor = 1 + BRIGHTNESS * (2 * torch.rand(()).item() - 1)
        image = ImageEnhance.Brightness(image).enhance(factor)
    return image


LOADERS = {"device": DeviceLoader, "pil": PilLoader}
