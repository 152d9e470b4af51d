"""Backbones: one file per family; each exports BACKBONES, name -> function that builds it."""

import importlib
import pkgutil
from collections.abc import Callable

from memo_jax.backbones.base import Backbone
from memo_jax.errors import expect_one_of


def builders() -> dict[str, Callable[[], Backbone]]:
    """Every backbone of every family in this package, by name."""
    found = {}
    for module in pkgutil.iter_modules(__path__):
        family = importlib.import_module(f"{__name__}.{module.name}")
        found |= getattr(family, "BACKBONES", {})
    return found


def get(name: str) -> Backbone:
    """Builds a backbone by name. Raises UserError for an unknown one."""
    known = builders()
    expect_one_of("backbone.name", name, known)
    return known[name]()
