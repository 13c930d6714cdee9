# SPDX-License-Identifier: Apache-2.0
"""The kernel's counts on a host's interfaces.

The counts come from the interface's queue, not from /proc/net/dev. A super-packet becomes many frames on a
real link. /proc/net/dev counts its headers once. The queue counts the bytes of all frames.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from railweave.topologies.lab.flows import Flows

COMMAND = ("tc", "-s", "-j", "qdisc", "show")


@dataclass(frozen=True)
class InterfaceCounters:
    """Hold the kernel's counts of one interface since it was made.

    Attributes:
        bytes_sent: Bytes sent, Ethernet headers included.
        packets_sent: Packets sent.
        dropped: Packets dropped because the queue was full.
        flows: Bytes sent by protocol and ports.
    """

    bytes_sent: int
    packets_sent: int
    dropped: int
    flows: Flows = field(default_factory=Flows)

    def __sub__(self, before: InterfaceCounters) -> InterfaceCounters:
        """Return the counts since `before`."""
        return InterfaceCounters(
            self.bytes_sent - before.bytes_sent,
            self.packets_sent - before.packets_sent,
            self.dropped - before.dropped,
            self.flows - before.flows,
        )


def parse(text: str) -> dict[str, InterfaceCounters]:
    """Parse the output of COMMAND, without the interfaces that have no queue."""
    return {
        queue["dev"]: InterfaceCounters(queue["bytes"], queue["packets"], queue["drops"])
        for queue in json.loads(text)
        if queue.get("root") and queue["kind"] != "noqueue"
    }
