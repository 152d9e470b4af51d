"""Runs or resumes an experiment.

    python launch.py --config configs/cifar_b0i10.py [--workdir DIR] [--config.x.y=VALUE ...]

`--config FILE.py:METHOD` picks another method than the file's own. Every setting is explained in
configs/base.py. Exit codes: 0 done, 2 bad input, 130 or 143 interrupted (it says what is saved).
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


def parse(argv: list[str]) -> pathlib.Path:
    """Parses the flags, returns the config's file. Raises UserError if they are off."""
    try:
        rest = flags.FLAGS(argv)[1:]
        config = CONFIG.value
    except flags.Error as error:
        raise UserError(f"{_one_line(error)}; configs/base.py explains the settings") from error
    except (AttributeError, KeyError) as error:
        raise UserError(f"unknown setting: {_one_line(error)}; see configs/base.py") from error
    except Exception as error:  # whatever a config file raises
        raise UserError(f"the config file cannot be used: {_one_line(error)}") from error
    if rest:
        raise UserError(f"expected only flags, found {rest[0]!r}; settings are --config.NAME=VALUE")
    if config is None:
        raise UserError("expected --config FILE.py with a get_config(), found none; see configs/")
    return pathlib.Path(config_flags.get_config_filename(flags.FLAGS["config"]).split(":")[0])


def _one_line(error: Exception) -> str:
    text = " ".join(str(error.args[0] if error.args else "").split())
    return f"{type(error).__name__}: {text[:300]}" if isinstance(error, SyntaxError) else text[:300]


def main(argv: list[str]) -> int:
    """Parses, runs, and turns what went wrong into one line; returns the exit code."""
    logging.basicConfig(format="%(levelname)s: %(message)s", level=logging.WARNING)
    if {"-h", "--help"} & set(argv):
        print(__doc__)
        return 0
    try:
        config_file = parse(argv)
        from memo_jax import experiment, run_folder
        from memo_jax.interrupts import Interrupted

        workdir = WORKDIR.value or run_folder.default(CONFIG.value, config_file.stem)
        try:
            experiment.run(CONFIG.value, pathlib.Path(workdir))
        except Interrupted as stop:
            print(stop, file=sys.stderr)
            return stop.exit_code
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped at once; what was saved before is kept", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
