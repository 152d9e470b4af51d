"""Huge pages for everything that malloc gives out, on Linux.

XLA takes the memory for intermediate results of a step from malloc and gives it back after the
step, on CPU hundreds of megabytes, and the system clears every page again at its first use. In
pages of 2 MB instead of 4 KB a ResNet32 step is a sixth faster. glibc (2.35 or newer) asks for
them if told so before the program starts; other C libraries ignore it.
"""

import os
import sys

VARIABLE, SETTING = "GLIBC_TUNABLES", "glibc.malloc.hugetlb"


def variable(environment: dict[str, str]) -> dict[str, str]:
    """The variable to add to `environment`; empty where it says itself what it wants."""
    there = environment.get(VARIABLE, "")
    if SETTING in there:
        return {}
    return {VARIABLE: ":".join(filter(None, (there, f"{SETTING}=1")))}


def restart_with() -> None:
    """Starts this program again with huge pages, unless it has them; call it before any work."""
    if sys.platform == "linux" and variable(os.environ):
        os.environ |= variable(os.environ)
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
