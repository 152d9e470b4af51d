"""Figures, tables and one page about runs and studies, beside the paper's numbers.

python -m memo_jax report runs/cifar_b0i10                     # all runs below a folder
python -m memo_jax report runs/memo runs/der --out compared
python -m memo_jax report runs/studies/curve                   # a study; into its report/
python -m memo_jax report runs/studies/settings --markdown     # a table to paste
python -m memo_jax report runs/studies/settings --readme README.md   # ... put between two markers
"""

import argparse
import pathlib

from memo_jax.report import load, markdown, page

HELP = "runs and studies compared with one another and with the paper: page, figures, tables"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    add = parser.add_argument
    add("folders", nargs="+", type=pathlib.Path, metavar="RUN_OR_STUDY", help="where they lie")
    add(
        "--out",
        type=pathlib.Path,
        help="folder of the page; default: report/ in a study's folder, else runs/report",
    )
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--markdown", action="store_true", help="print the table of results, no page")
    only.add_argument(
        "--readme",
        type=pathlib.Path,
        metavar="FILE",
        help="put that table between the markers in FILE, no page",
    )


def run(args: argparse.Namespace) -> None:
    """Writes what was asked for. Raises UserError for what cannot be read or compared."""
    sets = load.collect(args.folders)
    if args.markdown:
        print(markdown.results(sets))
    elif args.readme:
        markdown.put(args.readme, markdown.results(sets))
        print(f"results: {args.readme}")
    else:
        print(f"report: {page.write(sets, args.out or _default(sets))}")


def _default(sets: list[load.RunSet]) -> pathlib.Path:
    only = sets[0].folder if len(sets) == 1 else None
    return only / "report" if only else pathlib.Path("runs", "report")
