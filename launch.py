"""Runs or resumes an experiment, or a study: a set of experiments.

    python launch.py --config configs/cifar_b0i10.py [--workdir DIR] [--config.x.y=VALUE ...]
    python launch.py --config configs/studies/settings.py [--only GLOB] [--shard i/n] ...

`--config FILE.py:METHOD` picks another method than the file's own; of a study, FILE.py:digits is
the small twin on digits. Every setting is explained in configs/base.py; in a study it holds for
all runs. `--only 'cifar100-b0i10-*'` chooses runs by name, `--shard 1/2` the first of two parts
for two machines, `--dry-run` shows what would be done and how long it will take. Of one
experiment it shows images, steps and memory task by task, and refuses what does not fit; with
`--device-memory GB` into devices of that memory (2**30 bytes that JAX may use; of a GPU it takes
75 % unless XLA_PYTHON_CLIENT_MEM_FRACTION says otherwise), else into those that are here.
docs/pods.md tells how several processes on one or many hosts run one experiment together.
Exit codes: 0 done, 1 some runs of a study failed, 2 bad input, 130 or 143 interrupted (it says
what is saved).
"""

import logging
import os
import pathlib
import re
import signal
import sys

from memo_jax import huge_pages

if __name__ == "__main__":
    huge_pages.restart_with()

# XLA's and Orbax's own chatter; warnings and errors still show.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")

from absl import flags
from ml_collections import config_flags

from memo_jax.errors import UserError

CONFIG = config_flags.DEFINE_config_file("config", None, "Experiment file, or FILE.py:METHOD.")
WORKDIR = flags.DEFINE_string(
    "workdir",
    None,
    "Folder of the run; default: runs/<config>/<method>-order<O>-seed<S>, or runs/studies/<study>.",
)
ONLY = flags.DEFINE_string("only", None, "Runs of a study: those whose names match this pattern.")
SHARD = flags.DEFINE_string("shard", None, "Part of a study: i/n, the i-th of n parts.")
DRY_RUN = flags.DEFINE_bool("dry-run", False, "Shows what would be run, and trains nothing.")
DEVICE_MEMORY = flags.DEFINE_float(
    "device-memory", None, "Of a dry run: plans for devices of so many GB (2**30 bytes)."
)
COORDINATOR = flags.DEFINE_string(
    "coordinator", None, "Of several processes: host:port of number 0."
)
PROCESSES = flags.DEFINE_integer("processes", None, "Of several processes: how many there are.")
PROCESS = flags.DEFINE_integer("process", None, "Of several processes: which of them this is.")
DISTRIBUTED = flags.DEFINE_bool(
    "distributed", False, "Several processes, which the cluster knows (TPU pod, SLURM, ...)."
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
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stop)
    if {"-h", "--help"} & set(argv):
        print(__doc__)
        return 0
    from memo_jax.interrupts import Interrupted

    try:
        config_file = parse(argv)
        from memo_jax import hosts  # after the flags: JAX takes long to import

        with hosts.joined(COORDINATOR.value, PROCESSES.value, PROCESS.value, DISTRIBUTED.value):
            return launch(config_file)
    except Interrupted as stop:
        print(stop, file=sys.stderr)
        return stop.exit_code
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def launch(config_file: pathlib.Path) -> int:
    """Runs what the parsed flags ask for; returns the exit code."""
    from memo_jax import experiment, run_folder, study
    from memo_jax.study import runner

    config = CONFIG.value
    check_device_memory(DEVICE_MEMORY.value, DRY_RUN.value and not study.is_study(config))
    if study.is_study(config):
        changed = config_flags.get_override_values(flags.FLAGS["config"])
        whole = study.read(config, config_file.stem, WORKDIR.value, changed)
        failed = runner.run(whole, ONLY.value, SHARD.value, DRY_RUN.value)
        if failed:
            print(f"{len(failed)} runs failed: {', '.join(failed)}", file=sys.stderr)
        return 1 if failed else 0
    if ONLY.value or SHARD.value:
        given = "--only" if ONLY.value else "--shard"
        raise UserError(f"{given} chooses among the runs of a study; {config_file} is one run")
    workdir = pathlib.Path(WORKDIR.value or run_folder.default(config, config_file.stem))
    if DRY_RUN.value:
        runner.estimate_one(config, workdir, DEVICE_MEMORY.value)
    else:
        experiment.run(config, workdir)
    return 0


def check_device_memory(gigabytes: float | None, planning: bool) -> None:
    """Raises UserError for a --device-memory that is none, or not for the planning of one run."""
    if gigabytes is not None and not planning:
        raise UserError("--device-memory is for the --dry-run of one experiment; leave it out")
    if gigabytes is not None and not 0 < gigabytes < float("inf"):
        raise UserError(f"--device-memory: expected GB above 0 such as 80, found {gigabytes}")


def _stop(number: int, _) -> None:
    """Ends at once where nothing is at work that could save first (memo_jax/interrupts.py)."""
    os.write(2, b"stopped at once; what was saved before is kept\n")  # print may be at work
    sys.exit(128 + number)


if __name__ == "__main__":
    sys.exit(main(sys.argv))
