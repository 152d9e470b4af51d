"""How many exemplars a run gets: one budget for models and exemplars together.

A budget is a number of exemplars, or megabytes that are filled up, or the memory of another
method that is matched. Every method is counted by the same rule, so their comparison is fair.
"""

import dataclasses

from memo_jax import backbones, budget, methods, network
from memo_jax.budget import Ledger
from memo_jax.errors import UserError, expect_one_of
from memo_jax.methods.base import Method
from memo_jax.network import Network


@dataclasses.dataclass(frozen=True)
class Stream:
    """What the data ask for: image shape `(H, W, C)`, classes, tasks, training images.

    num_images may be None where it is not known; only methods that keep everything need it.
    """

    image_shape: tuple[int, int, int]
    num_classes: int
    num_tasks: int
    num_images: int | None


@dataclasses.dataclass(frozen=True)
class Budget:
    """The budget settings of config.memory (configs/base.py explains them)."""

    exemplars: int | None = None
    total_mb: float | None = None
    align_to: str = "der"
    base_exemplars: int = 2000


def network_of(method: Method, backbone: str, cut: str, image_shape) -> Network:
    """The network of a method. Raises UserError for a backbone, cut or image size that is off."""
    return network.build(backbones.get(backbone), image_shape, cut, method.grows)


def parameters(method: Method, backbone: str, cut: str, image_shape, num_tasks: int) -> int:
    """Parameters of trunk and blocks at the end of a run."""
    return network_of(method, backbone, cut, image_shape).num_parameters(num_tasks)


def reference(align_to: str, backbone: str) -> tuple[Method, str]:
    """What `align_to` names: a method, or METHOD:BACKBONE; without one, `backbone` is meant.

    Raises UserError for names that do not exist and for a method that knows no budget.
    """
    name, _, other = align_to.partition(":")
    method = methods.get(name, field="memory.align_to")
    if method.keeps != "budget":
        raise UserError(
            f"memory.align_to: {name} keeps {method.keeps} of the old images and has no budget to "
            f"match; choose another method"
        )
    if other:
        expect_one_of("memory.align_to", other, backbones.builders())
    return method, other or backbone


def ledger(method: Method, backbone: str, cut: str, stream: Stream, wish: Budget) -> Ledger:
    """What a run holds at its end under the budget `wish`.

    Raises UserError for a budget that is exceeded, for one with less than an exemplar per class
    and for one with more exemplars than images.
    """
    count = parameters(method, backbone, cut, stream.image_shape, stream.num_tasks)
    kept = 0
    if method.keeps == "everything":
        kept = _everything(method, stream)
    elif method.keeps == "budget":
        kept = _exemplars(method, backbone, cut, stream, wish, count)
    planned = Ledger(kept, count, budget.image_bytes(stream.image_shape))
    if wish.total_mb is not None and planned.total_mb > wish.total_mb:
        raise UserError(
            f"memory.total_mb: expected at most {wish.total_mb:g} MB, found {planned.total_mb:.2f} "
            f"MB: {kept} exemplars ({planned.exemplar_mb:.2f} MB) and {count:,} parameters after "
            f"{stream.num_tasks} tasks ({planned.model_mb:.2f} MB) of {method.name}; raise it, or "
            f"choose a smaller backbone, another cut or fewer exemplars"
        )
    if method.keeps == "budget":
        budget.check(kept, stream.num_classes, stream.num_images)
    return planned


def _everything(method: Method, stream: Stream) -> int:
    if stream.num_images is None:
        raise UserError(
            f"{method.name} keeps all training images; say how many there are (--images)"
        )
    return stream.num_images


def _exemplars(
    method: Method, backbone: str, cut: str, stream: Stream, wish: Budget, count: int
) -> int:
    """The exemplars that `wish` gives beside `count` parameters; no more than there are images."""
    if wish.exemplars:
        return wish.exemplars
    if wish.total_mb is not None:
        found = budget.exemplars_within(wish.total_mb, count, stream.image_shape)
    else:
        other, other_backbone = reference(wish.align_to, backbone)
        matched = parameters(other, other_backbone, cut, stream.image_shape, stream.num_tasks)
        found = budget.aligned_exemplars(wish.base_exemplars, matched - count, stream.image_shape)
        if found < 0:
            size = budget.image_bytes(stream.image_shape)
            whole, own = Ledger(wish.base_exemplars, matched, size), Ledger(0, count, size)
            raise UserError(
                f"memory.align_to: {wish.align_to} takes {whole.total_mb:.2f} MB, less than the "
                f"networks of {method.name} alone ({own.model_mb:.2f} MB); align to a larger one"
            )
    return found if stream.num_images is None else min(found, stream.num_images)
