"""Shared by the tests: they run on the CPU, and all processes share what they have compiled."""

import atexit
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

os.environ["JAX_PLATFORMS"] = "cpu"
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:  # else set by the process that started this one
    os.environ["JAX_COMPILATION_CACHE_DIR"] = tempfile.mkdtemp(prefix="memo_jax-compiled-")
    atexit.register(shutil.rmtree, os.environ["JAX_COMPILATION_CACHE_DIR"], ignore_errors=True)
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.2"
os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "0"

import pytest

ROOT = pathlib.Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))


@pytest.fixture(scope="session")
def launch():
    """Starts `python launch.py ARGS` as a user would; `wait` False gives the running process."""

    def start(*args: str, wait: bool = True, cwd: pathlib.Path = ROOT):
        command = [sys.executable, str(ROOT / "launch.py"), *map(str, args)]
        options = {"cwd": cwd, "text": True}
        if wait:
            return subprocess.run(command, capture_output=True, timeout=500, **options)
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)

    return start
