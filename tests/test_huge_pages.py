"""A program that asks for huge pages starts again once, and touches memory with few page faults."""

import os
import pathlib
import platform
import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys
from memo_jax import huge_pages
print("started", sys.argv[1:], flush=True)
huge_pages.restart_with()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(4):
    b"x" * 2**27
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
FAULTS_WITHOUT = 4 * 2**27 // 2**12
SUPPORT = pathlib.Path("/sys/kernel/mm/transparent_hugepage/enabled")

linux = pytest.mark.skipif(sys.platform != "linux", reason="huge pages are asked for on Linux only")


def run(tunables: str) -> list[str]:
    """The lines of the program, started with this GLIBC_TUNABLES."""
    environment = {**os.environ, "GLIBC_TUNABLES": tunables}
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, "a b", "--flag"],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.splitlines()


@linux
@pytest.mark.parametrize("tunables", ["", "glibc.malloc.check=0"])
def test_the_program_starts_again_once_with_its_arguments(tunables):
    *starts, faults = run(tunables)
    assert starts == ["started ['a b', '--flag']"] * 2
    glibc, version = platform.libc_ver()
    newer = glibc == "glibc" and tuple(map(int, version.split("."))) >= (2, 35)
    if newer and SUPPORT.exists() and "[never]" not in SUPPORT.read_text():
        assert int(faults) < FAULTS_WITHOUT / 4


@linux
def test_who_has_decided_is_left_alone():
    *starts, faults = run("glibc.malloc.hugetlb=0")
    assert len(starts) == 1
    if "[always]" not in SUPPORT.read_text():
        assert int(faults) > FAULTS_WITHOUT / 2
