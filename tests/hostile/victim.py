# SPDX-License-Identifier: Apache-2.0
"""A real switch process on separate links, whose memory the tests watch."""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from socket import socket

from dataplane.harness import links, process

from railweave.switch.targets import EMBEDDED

DEVICE = 1


@dataclass(frozen=True)
class Victim:
    """The process, its P4Runtime address and the far ends of its ports."""

    child: subprocess.Popen[bytes]
    address: str
    sockets: Mapping[int, socket]

    def memory_kib(self) -> int:
        """Return the resident memory."""
        return self._status("VmRSS:")

    def peak_kib(self) -> int:
        """Return the peak of the resident memory."""
        return self._status("VmHWM:")

    def _status(self, name: str) -> int:
        status = Path(f"/proc/{self.child.pid}/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith(name))

    def check_alive(self) -> None:
        """Raise AssertionError if the switch has ended."""
        assert self.child.poll() is None, f"the switch ended with {self.child.returncode}"


@contextlib.contextmanager
def running(*options: str) -> Iterator[Victim]:
    """Run the embedded switch as a process. It must end cleanly at the end of the context."""
    with tempfile.TemporaryDirectory() as folder, links("hostile") as (namespace, interfaces, sockets):
        address = f"unix:{folder}/grpc"
        command = [*EMBEDDED.command(interfaces, address, DEVICE), *options]
        log = Path(folder, "log")
        # With one arena per thread, the arenas would hold up to 20 MiB of free memory.
        one_arena = ["env", "MALLOC_ARENA_MAX=1"]
        with process(["ip", "netns", "exec", namespace, *one_arena, *command], log) as child:
            yield Victim(child, address, sockets)
        assert "Traceback" not in log.read_text(), log.read_text()
