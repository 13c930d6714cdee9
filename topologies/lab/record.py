# SPDX-License-Identifier: Apache-2.0
"""The record of a running lab. The next lab reads it to clean up after a killed run."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

RUN_FOLDER = Path("/run/railweave")


@dataclass(frozen=True)
class Identity:
    """Identifies a process by number and start time, because Linux reuses numbers."""

    name: str
    pid: int
    start_ticks: int

    @classmethod
    def of(cls, name: str, pid: int) -> Identity:
        """Return the identity of a running process. ProcessLookupError if no process has that number."""
        return cls(name, pid, start_ticks(pid))

    def alive(self) -> bool:
        """Whether this process still runs."""
        try:
            return start_ticks(self.pid) == self.start_ticks
        except ProcessLookupError:
            return False


def start_ticks(pid: int) -> int:
    """Return when a process started, in clock ticks since boot (field 22 of /proc/PID/stat)."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        raise ProcessLookupError(pid) from None
    fields = text.rpartition(")")[2].split()
    if fields[0] == "Z":  # it has ended, and its parent has not waited for it yet
        raise ProcessLookupError(pid)
    return int(fields[19])


class RunRecord:
    """A file in `folder` that names every process of one lab. The lab's end removes it."""

    def __init__(self, out: Path, folder: Path = RUN_FOLDER) -> None:
        """Start the record of this process's lab, which writes its output to `out`."""
        folder.mkdir(parents=True, exist_ok=True)
        self._owner = Identity.of("railweave", os.getpid())
        self._path = folder / f"{self._owner.pid}-{self._owner.start_ticks}-{id(self):x}.json"
        self._out = out
        self._processes: list[Identity] = []
        self._write()

    def add(self, name: str, pid: int) -> None:
        """Add a process that the lab has started."""
        with contextlib.suppress(ProcessLookupError):  # the process has ended already
            self._processes.append(Identity.of(name, pid))
            self._write()

    def remove(self) -> None:
        """Remove the record after the end of all processes."""
        self._path.unlink(missing_ok=True)

    def _write(self) -> None:
        content = {
            "owner": asdict(self._owner),
            "out": str(self._out.absolute()),
            "processes": [asdict(process) for process in self._processes],
        }
        temporary = self._path.with_suffix(".new")
        temporary.write_text(json.dumps(content, indent=1))
        temporary.replace(self._path)


@dataclass(frozen=True)
class Leftovers:
    """The processes that were left by a killed run."""

    owner_pid: int
    out: str
    killed: tuple[Identity, ...]

    def __str__(self) -> str:
        """Describe the cleanup in one line."""
        names = ", ".join(f"{process.name} ({process.pid})" for process in self.killed) or "no process"
        return f"cleaned up after a run that was killed (pid {self.owner_pid}, output in {self.out}): {names}"


def sweep(folder: Path = RUN_FOLDER) -> list[Leftovers]:
    """Kill the processes that killed runs have left. Their number and start time must match a record.

    Namespaces and links disappear with their last process. Running labs are not touched.
    """
    found = []
    for path in sorted(folder.glob("*.json")):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            content = json.loads(path.read_text())
            owner = Identity(**content["owner"])
            if owner.alive():
                continue
            found.append(Leftovers(owner.pid, content["out"], _kill(content["processes"])))
            path.unlink(missing_ok=True)
    return found


def _kill(processes: list[dict[str, Any]]) -> tuple[Identity, ...]:
    alive = [identity for identity in (Identity(**entry) for entry in processes) if identity.alive()]
    for identity in alive:
        with contextlib.suppress(ProcessLookupError):
            os.kill(identity.pid, signal.SIGKILL)
    return tuple(alive)
