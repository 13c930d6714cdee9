# SPDX-License-Identifier: Apache-2.0
"""What a switch process is started with, and how it says that it cannot."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

DROP_PORT = 511  # v1model's egress_spec for "nowhere": no interface may have it
MAX_SUPER_PACKET_BYTES = 65_535  # what an IP length can say


class SwitchError(Exception):
    """The switch cannot start or go on: what was given, and what to do."""


@dataclass(frozen=True)
class SwitchOptions:
    """What a switch is started with."""

    interfaces: Mapping[int, str]  # port number to interface name
    grpc: str = "127.0.0.1:9559"  # address of the P4Runtime server, in gRPC's syntax
    device_id: int = 1  # as controllers name the switch
    program: Path | None = None  # BMv2 JSON to run from the start
    p4info: Path | None = None  # its P4Info, text or binary
    super_packet_bytes: int = MAX_SUPER_PACKET_BYTES  # longest run of like packets sent as one

    def ready_line(self) -> str:
        """What a switch prints once it serves."""
        ports = ",".join(f"{port}@{name}" for port, name in self.interfaces.items())
        return f"ready grpc={self.grpc} ports={ports}"


def parse_interfaces(specifications: Sequence[str]) -> dict[int, str]:
    """`PORT@INTERFACE` strings as a mapping; SwitchError for anything else."""
    interfaces: dict[int, str] = {}
    for specification in specifications:
        number, at, name = specification.partition("@")
        if not at or not name or not number.isdecimal():
            raise SwitchError(f"{specification!r} is not PORT@INTERFACE, such as 1@s1-eth1")
        port = int(number)
        if port >= DROP_PORT:
            raise SwitchError(f"port {port}: ports are 0…{DROP_PORT - 1} ({DROP_PORT} means drop)")
        if port in interfaces:
            raise SwitchError(f"port {port} is given twice: {interfaces[port]} and {name}")
        if name in interfaces.values():
            raise SwitchError(f"interface {name} is given twice")
        interfaces[port] = name
    if not interfaces:
        raise SwitchError("a switch needs at least one --interface PORT@INTERFACE")
    return interfaces


def stop_on_signals() -> asyncio.Event:
    """An event that SIGINT and SIGTERM set, in place of ending the process."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop
