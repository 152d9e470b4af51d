"""Herding, class means and nearest-mean scores in PyTorch, as memo_jax/exemplars.py."""

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence


def normalise(features: Tensor) -> Tensor:
    """L2-normalises the last axis; the tiny addend is the published code's."""
    return features / (features.norm(dim=-1, keepdim=True) + 1e-8)


@torch.inference_mode()
def herd(features: Tensor, m: int, valid: Tensor) -> Tensor:
    """Greedy picks whose running mean stays closest to the class mean, int `[classes, m]`.

    features `[classes, n, D]` raw, all classes side by side; valid bool `[classes, n]` is False
    for rows that only fill up. Picks beyond a class's own images mean nothing.
    """
    features = normalise(features) * valid[..., None]
    squares = features.square().sum(2)
    mean = features.sum(1) / valid.sum(1, keepdim=True)
    total, taken, picks = torch.zeros_like(mean), ~valid, []
    classes = torch.arange(len(features), device=features.device)
    for k in range(1, m + 1):
        # k^2 |mean - (features + total) / k|^2 without the terms that are equal for all.
        distances = squares + 2 * (features @ (total - k * mean)[..., None])[..., 0]
        best = distances.masked_fill_(taken, torch.inf).argmin(1)
        picks.append(best)
        taken[classes, best] = True
        total += features[classes, best]
    return torch.stack(picks, dim=1)


def select(features: Tensor, sizes: np.ndarray, quota: np.ndarray) -> list[np.ndarray]:
    """For each class, places of its picks among its own images.

    features `[n, D]`, class after class; sizes int `[classes]`: images of each; quota int
    `[classes]`: how many it may keep. A class with fewer keeps all it has.
    """
    padded = pad_sequence(features.split(sizes.tolist()), batch_first=True)
    places = torch.arange(padded.shape[1], device=features.device)
    valid = places < torch.as_tensor(sizes, device=features.device)[:, None]
    wanted = int(min(sizes.max(), quota.max()))
    picks = herd(padded, wanted, valid).cpu().numpy()
    return [p[: min(size, q)] for p, size, q in zip(picks, sizes, quota)]


def class_means(features: Tensor, labels: Tensor, num_classes: int) -> Tensor:
    """Mean of each class's L2-normalised features `[M, D]`, normalised again: `[K, D]`."""
    labels = labels.to(features.device)
    sums = features.new_zeros(num_classes, features.shape[1])
    sums.index_add_(0, labels, normalise(features))
    counts = torch.bincount(labels, minlength=num_classes).clamp_min(1)
    return normalise(sums / counts[:, None])


def nearest_mean_scores(features: Tensor, means: Tensor) -> Tensor:
    """Minus the squared distances `[B, K]` of normalised features `[B, D]` to class means."""
    features = normalise(features)
    squares = features.square().sum(1)[:, None] + means.square().sum(1)[None]
    return 2 * features @ means.T - squares
