# SPDX-License-Identifier: Apache-2.0
"""What the kernel has counted on the interfaces of a namespace."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class InterfaceCounters:
    """Counts since the interface was made; bytes include the Ethernet header."""

    bytes_received: int
    packets_received: int
    dropped_on_receipt: int
    bytes_sent: int
    packets_sent: int
    dropped_on_send: int


def parse(text: str) -> dict[str, InterfaceCounters]:
    """Read the text of /proc/PID/net/dev."""
    counters = {}
    for line in text.splitlines()[2:]:
        name, _, numbers = line.partition(":")
        values = [int(value) for value in numbers.split()]
        counters[name.strip()] = InterfaceCounters(
            bytes_received=values[0],
            packets_received=values[1],
            dropped_on_receipt=values[3],
            bytes_sent=values[8],
            packets_sent=values[9],
            dropped_on_send=values[11],
        )
    return counters


def read(pid: int) -> dict[str, InterfaceCounters]:
    """Return the counters by interface of the network namespace that process `pid` lives in."""
    return parse(Path(f"/proc/{pid}/net/dev").read_text())
