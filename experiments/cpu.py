# SPDX-License-Identifier: Apache-2.0
"""The load of the machine's processors, from the kernel's counters."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
STAT = Path("/proc/stat")


@dataclass(frozen=True)
class CpuTimes:
    """Processor times in seconds, over all cores. They can be added and subtracted."""

    total_s: float = 0.0
    idle_s: float = 0.0
    stolen_s: float = 0.0  # by other virtual machines
    services_s: float = 0.0  # of the given processes

    def __sub__(self, other: CpuTimes) -> CpuTimes:
        """Return the times since `other`."""
        return CpuTimes(*(getattr(self, f.name) - getattr(other, f.name) for f in fields(self)))

    def __add__(self, other: CpuTimes) -> CpuTimes:
        """Return the sum of both."""
        return CpuTimes(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def cpu_times(services: Mapping[str, int]) -> CpuTimes:
    """Return the times so far, including those of `services`, process IDs by name.

    A process that has ended counts as 0.
    """
    user, nice, system, idle, wait, interrupt, soft, stolen, *_ = map(
        int, STAT.read_text().partition("\n")[0].split()[1:]
    )
    total = user + nice + system + idle + wait + interrupt + soft + stolen
    used = sum(_ticks(pid) for pid in services.values())
    return CpuTimes(*(count / TICKS_PER_S for count in (total, idle + wait, stolen, used)))


def waited_s() -> dict[int, float]:
    """Return how long each thread of this process has waited for a core, by thread."""
    waited = {}
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # it has just ended, or the kernel does not count
            waited[int(task.name)] = int((task / "schedstat").read_text().split()[1]) / 1e9
    return waited


def runnable() -> int:
    """Return how many threads run or wait for a core now."""
    return next(
        int(line.split()[1]) for line in STAT.read_text().splitlines() if line.startswith("procs_running")
    )


def _ticks(pid: int) -> int:
    """Return the user and system time of a process: fields 14 and 15 of its stat file."""
    try:
        after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return int(after_name[11]) + int(after_name[12])
