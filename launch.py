"""Runs or resumes an experiment.

    python launch.py --config configs/cifar_b0i10.py [--workdir DIR] [--config.x.y=VALUE ...]

`--config FILE.py:METHOD` picks another method than the file's own. Every setting is explained in
configs/base.py. Exit codes: 0 done, 2 bad input, 130 or 143 interrupted with everything saved.
"""

import logging
import os
import pathlib
import sys

# XLA's and Orbax's own chatter; warnings and errors still show.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")

from absl import flags
from ml_collections import config_flags

from memo_jax.errors import UserError

CONFIG = config_flags.DEFINE_config_file("config", None, "Experiment file, or FILE.py:METHOD.")
WORKDIR = flags.DEFINE_string(
    "workdir", None, "Folder of the run; default: runs/<config>/<method>-order<O>-seed<S>."
)


def parse(argv: list[str]) -> None:
    """Parses the flags. Raises UserError with one line for anything that does not fit."""
    try:
        rest = flags.FLAGS(argv)[1:]
    except AttributeError as error:
        hint = " ".join(str(error.args[0]).split())
        raise UserError(f"unknown setting {hint}; configs/base.py lists them all") from error
    except flags.Error as error:
        raise UserError(f"{str(error).splitlines()[0]}; see --help or configs/base.py") from error
    except OSError as error:
        raise UserError(f"no config file {_config_file()!r}; see configs/") from error
    if rest:
        raise UserError(f"expected only flags, found {rest[0]!r}; settings are --config.NAME=VALUE")
    if CONFIG.value is None:
        raise UserError("expected --config FILE.py, found none; see configs/")


def _config_file() -> str:
    return config_flags.get_config_filename(flags.FLAGS["config"])


def main(argv: list[str]) -> int:
    """Parses, runs, and turns what went wrong into one line; returns the exit code."""
    logging.basicConfig(format="%(levelname)s: %(message)s", level=logging.WARNING)
    try:
        parse(argv)
        from memo_jax import experiment, run_folder
        from memo_jax.interrupts import Interrupted

        name = pathlib.Path(_config_file().split(":")[0]).stem
        workdir = WORKDIR.value or run_folder.default(CONFIG.value, name)
        try:
            experiment.run(CONFIG.value, pathlib.Path(workdir))
        except Interrupted as stop:
            print(stop, file=sys.stderr)
            return stop.exit_code
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped before any work was done", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
