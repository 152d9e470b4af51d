"""How figures look and how they are kept. Matplotlib is imported when something is drawn.

Colours are Okabe and Ito's, which people of every colour vision can tell apart; each method has
one, with a marker and a dash of its own. Text and axes are in INK and GRID, two colours that
nothing else has, so that a page can exchange them for those of a light or a dark scheme.
"""

import contextlib
import dataclasses
import pathlib
import re
from collections.abc import Iterator

INK, GRID = "#1a1b1c", "#d5d6d7"
WIDTH = 4.7  # inches: at 10 points text is still read when the figure is as wide as a phone


@dataclasses.dataclass(frozen=True)
class Look:
    """Colour, marker and dash of a line, as Matplotlib takes them."""

    colour: str
    marker: str
    dash: str | tuple


LOOKS = {
    "memo": Look("#d55e00", "o", "-"),
    "der": Look("#0072b2", "s", (0, (5, 1.5))),
    "wa": Look("#009e73", "^", (0, (5, 1, 1, 1))),
    "icarl": Look("#cc79a7", "D", (0, (3, 1, 1, 1, 1, 1))),
    "replay": Look("#e69f00", "v", (0, (2, 1))),
    "finetune": Look("#56b4e9", "P", (0, (1, 1))),
    "joint": Look(INK, "X", (0, (8, 1.5))),
}
OTHER = Look("#8a8a8a", "*", "-")
"""A method that has no look of its own yet."""
VARIANTS = tuple(LOOKS.values())
PHASES = {
    "train": ("#0072b2", ""),
    "compile": ("#e69f00", "///"),
    "evaluate": ("#009e73", "..."),
    "exemplars": ("#cc79a7", "xxx"),
    "other": ("#8a8a8a", ""),
}
"""Phase of a run's time -> colour and hatching."""

_SETTINGS = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "lines.markersize": 5,
    "svg.fonttype": "none",
    **{name: INK for name in ("text.color", "axes.labelcolor", "axes.edgecolor")},
    **{name: INK for name in ("xtick.color", "ytick.color", "hatch.color")},
}


def look(method: str, number: int = 0, alone: bool = False) -> Look:
    """The look of a method's line; number tells apart several lines of one method in a figure.

    alone: whether the figure has no other method, so that colours are free to tell them apart.
    """
    own = LOOKS.get(method, OTHER)
    if not number:
        return own
    others = [other for other in VARIANTS if other != own]
    other = others[(number - 1) % len(others)]
    return other if alone else dataclasses.replace(other, colour=own.colour)


@contextlib.contextmanager
def canvas(title: str, height: float) -> Iterator:
    """A new figure, `height` inches high, to be drawn on and saved inside the context."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(_SETTINGS):
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        figure.suptitle(title, fontsize=10)
        yield figure


def save(figure, folder: pathlib.Path, name: str) -> str:
    """Writes `name`.png and `name`.svg; returns the SVG as it goes into a page.

    There its ids are its own, and what was INK and GRID takes the page's variables of those names.
    """
    import matplotlib

    folder.mkdir(parents=True, exist_ok=True)
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # laid out now, once for both
    figure.savefig(folder / f"{name}.png", dpi=160, facecolor="white")
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    with matplotlib.rc_context({"svg.hashsalt": name}):
        figure.savefig(folder / f"{name}.svg", transparent=True, metadata=nothing)
    return inline((folder / f"{name}.svg").read_text(), name)


def inline(svg: str, name: str) -> str:
    """An SVG file's text as part of a page that holds others."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(
        r'(<svg[^>]*?) width="[^"]*" height="[^"]*"|(<svg[^>]*?) width="[^"]*"', r"\1\2", svg
    )
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r'(href="#|url\(#)', rf"\g<1>{name}-", svg)
    return svg.replace(INK, "var(--ink)").replace(GRID, "var(--grid)")
