"""Methods: one file each, exporting METHOD; the file name is the name in the config."""

import importlib
import pkgutil

from memo_jax.errors import expect_one_of
from memo_jax.methods.base import Method


def names() -> list[str]:
    """The methods there are."""
    return sorted(m.name for m in pkgutil.iter_modules(__path__) if m.name != "base")


def get(name: str, field: str = "method.name") -> Method:
    """A method by name. Raises UserError for an unknown one, naming the setting it came from."""
    expect_one_of(field, name, names())
    return importlib.import_module(f"{__name__}.{name}").METHOD
