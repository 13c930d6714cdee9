# SPDX-License-Identifier: Apache-2.0
"""A Mininet node that runs the embedded switch, in place of p4lang/tutorials' `P4RuntimeSwitch`.

net = Mininet(topo, switch=P4Switch, controller=None)
"""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mininet.node import Switch

from railweave.errors import Unavailable

_START_S = 30.0
_STOP_S = 5.0
_POLL_S = 0.05


def _without_links(path: str, flags: int) -> int:
    """Open a log, but no link. Other users may write to the folder, and a link could lead to any file."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o644)


class P4Switch(Switch):  # type: ignore[misc] # Mininet has no types
    """The embedded switch with BMv2's options. Port numbers are those of Mininet's links.

    `json_path` is the program that runs from the start (default: a controller pushes one). The switch serves
    P4Runtime on all addresses at `grpc_port`. By default these ports count up from 50051, and device ids
    from 0.
    """

    _grpc_ports = itertools.count(50051)
    _device_ids = itertools.count()

    def __init__(
        self,
        name: str,
        *,
        json_path: str | None = None,
        grpc_port: int | None = None,
        device_id: int | None = None,
        pcap_dump: str | None = None,
        log_console: bool = False,
        log_file: str | None = None,
        cpu_port: int | None = None,
        priority_queues: int | None = None,
        **params: Any,
    ) -> None:
        """Keep the options; `params` are Mininet's. `log_file` is /tmp/p4s.NAME.log unless it is given."""
        super().__init__(name, **params)
        self.json_path = json_path
        self.grpc_port = next(self._grpc_ports) if grpc_port is None else grpc_port
        self.device_id = next(self._device_ids) if device_id is None else device_id
        self.pcap_dump = pcap_dump
        self.log_console = log_console
        self.log_file = Path(log_file or f"/tmp/p4s.{name}.log")  # noqa: S108 - as in p4lang/tutorials
        self.cpu_port = cpu_port
        self.priority_queues = priority_queues
        self._process: subprocess.Popen[bytes] | None = None

    def command(self) -> list[str]:
        """Return the command that runs the switch."""
        command = [sys.executable, "-m", "railweave.switch.simple_switch_grpc"]
        for port, interface in self.intfs.items():
            if not interface.IP():
                command += ["-i", f"{port}@{interface.name}"]
        command += ["--device-id", str(self.device_id)]
        command += ["--no-p4"] if self.json_path is None else [self.json_path]
        command += [f"--pcap={self.pcap_dump}"] if self.pcap_dump else []
        command += ["--log-console"] if self.log_console else []
        command += ["--", "--grpc-server-addr", f"0.0.0.0:{self.grpc_port}"]
        command += ["--cpu-port", str(self.cpu_port)] if self.cpu_port else []
        command += ["--priority-queues", str(self.priority_queues)] if self.priority_queues else []
        return command

    def start(self, controllers: Sequence[object]) -> None:
        """Run the switch until it serves P4Runtime. If it does not start, Unavailable has its output."""
        with open(self.log_file, "wb", opener=_without_links) as log:
            self._process = self.popen(self.command(), stdout=log, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + _START_S
        while "\nready " not in "\n" + self.log_file.read_text():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise Unavailable(
                    f"switch {self.name} did not start: {self.log_file.read_text().strip()}",
                    "the line `ready` in its log",
                    "correct the options that its log names",
                )
            time.sleep(_POLL_S)

    def stop(self, deleteIntfs: bool = True) -> None:  # noqa: N803 - Mininet's name
        """End the switch, and delete its interfaces."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None
        super().stop(deleteIntfs)
