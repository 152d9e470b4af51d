"""Places that may hold a dataset, tried in order until one has it."""

from collections.abc import Callable, Mapping
from typing import TypeVar

from memo_jax.errors import UserError, expect_one_of

T = TypeVar("T")


class Absent(Exception):
    """This source does not have the data; its text says where it looked, or why it failed."""


def first_present(
    dataset: str, sources: Mapping[str, Callable[[], T]], wanted: str, remedy: str
) -> T:
    """What the first source that has the data returns, or only the one called `wanted`.

    wanted: "auto", or a key of `sources`.
    Raises UserError for another `wanted`, and if no source has the data: then one line with the
    reason of each and the remedy.
    """
    expect_one_of("dataset.source", wanted, ["auto", *sources])
    reasons = []
    for name in sources if wanted == "auto" else [wanted]:
        try:
            return sources[name]()
        except Absent as reason:
            reasons.append(f"{name}: {reason}")
    raise UserError(f"{dataset} was not found ({'; '.join(reasons)}). {remedy}")
