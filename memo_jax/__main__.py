"""python -m memo_jax COMMAND ...: what there is beside running experiments (launch.py)."""

import argparse
import importlib
import os
import pkgutil
import sys

from memo_jax import commands
from memo_jax.errors import Parser, UserError


def main(argv: list[str]) -> int:
    """Runs a command; returns the exit code: 0 done, 2 bad input."""
    parser = Parser(prog="python -m memo_jax", description=__doc__, allow_abbrev=False)
    subparsers = parser.add_subparsers(required=True, metavar="COMMAND")
    for found in pkgutil.iter_modules(commands.__path__):
        module = importlib.import_module(f"{commands.__name__}.{found.name}")
        command = subparsers.add_parser(
            found.name,
            help=module.HELP,
            description=module.__doc__,
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_arguments(command)
        command.set_defaults(run=module.run)
    try:
        args = parser.parse_args(argv)
        args.run(args)
        sys.stdout.flush()
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # whoever read the output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
