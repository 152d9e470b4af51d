"""Runs or resumes an experiment.

    python launch.py --config configs/cifar_b0i10.py [--workdir DIR] [--config.x.y=VALUE ...]

`--config FILE.py:METHOD` picks another method than the file's own. Every setting is explained in
configs/base.py. Exit codes: 0 done, 2 bad input, 130 or 143 interrupted (it says what is saved).
"""

import logging
import os
import pathlib
import re
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
    words = " ".join(argv[1:]).replace("--config=", "--config ").split()
    file = words[words.index("--config") + 1 :] if "--config" in words else []
    if not file:
        raise UserError("expected --config FILE.py, found none; see configs/")
    file = pathlib.Path(file[0].split(":")[0])
    if not file.is_file():
        raise UserError(f"there is no config file {str(file)!r}; see configs/")
    try:
        rest = flags.FLAGS(argv)[1:]
    except flags.Error as error:
        raise UserError(f"{_one_line(error)}; configs/base.py explains the settings") from error
    except Exception as error:  # whatever a setting that is not there or the file itself raises
        unknown = isinstance(error, AttributeError | KeyError) and "--config." in " ".join(argv)
        what = "unknown setting" if unknown else f"{file} cannot be used as a config"
        raise UserError(f"{what}: {_one_line(error)}; see configs/base.py") from error
    if rest:
        raise UserError(f"expected only flags, found {rest[0]!r}; settings are --config.NAME=VALUE")
    if CONFIG.value is None:
        raise UserError(f"get_config() of {file} returned None; it should return the config")
    return file


def _one_line(error: Exception) -> str:
    """What a library says, without the tracebacks and dumps it may put around it."""
    text = str(error.args[0] if error.args else error).strip()
    text = text.replace("\\n", " ").replace("\\'", "'")
    if text[:1] == text[-1:] == "'":
        text = text[1:-1]
    if "Traceback" in text:
        text = text.splitlines()[-1]
    text = re.sub(r"Other fields present: .*?(?=Did you mean|$)", "", text, flags=re.DOTALL)
    return " ".join(text.split())[:300]


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
