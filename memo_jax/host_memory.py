"""How much memory the host still has."""

import contextlib
from pathlib import Path


def available_memory() -> int | None:
    """Bytes that this process may still take: of machine and control group. None if not Linux."""
    limits = []
    with contextlib.suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/meminfo").read_text().splitlines()
        limits.append(1024 * int(next(x for x in lines if "MemAvailable" in x).split()[1]))
    with contextlib.suppress(OSError, ValueError):  # the limit says "max" where there is none
        group = Path("/sys/fs/cgroup")
        used = int((group / "memory.current").read_text())
        cached = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        limit = int((group / "memory.max").read_text())
        limits.append(limit - used + int(cached.get("inactive_file", 0)))
    return min(limits, default=None)
