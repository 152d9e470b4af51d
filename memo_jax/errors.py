"""The one exception that speaks to the user: a single line, printed without a traceback."""

import argparse
import difflib
from collections.abc import Iterable


class UserError(Exception):
    """Bad input met at the border: says what was expected, what was found and the remedy."""


def near(name: str, known: Iterable[str]) -> str:
    """Lists the known names for an error line, the closest first.

    Returns e.g. `did you mean 'resnet32'? Known: resnet8, resnet14, ...`.
    """
    known = list(known)
    close = difflib.get_close_matches(str(name), known, n=1, cutoff=0.6)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"{hint}Known: {', '.join(known)}"


def expect_one_of(field: str, name: str, known: Iterable[str]) -> None:
    """Raises UserError unless the config's `field` holds one of the known names."""
    known = list(known)
    if name not in known:
        raise UserError(f"{field}: there is no {name!r}; {near(name, known)}")


class Parser(argparse.ArgumentParser):
    """A command line whose mistakes are UserErrors instead of a usage text and an exit."""

    def error(self, message: str):
        raise UserError(f"{message}; see {self.prog} --help")
