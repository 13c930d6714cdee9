# SPDX-License-Identifier: Apache-2.0
"""What the kernel has counted on a host's interfaces.

The counts are those of the interface's queue, not of /proc/net/dev: there a super-packet, which becomes many
frames on a real link, has its headers counted once; the queue counts what the link would carry.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from railweave.topologies.lab.flows import Flows

COMMAND = ("tc", "-s", "-j", "qdisc", "show")


@dataclass(frozen=True)
class InterfaceCounters:
    """Counts since the interface was made; bytes include Ethernet headers."""

    bytes_sent: int
    packets_sent: int
    dropped: int  # because the queue was full
    flows: Flows = field(default_factory=Flows)  # none if the lab does not count them

    def __sub__(self, before: InterfaceCounters) -> InterfaceCounters:
        """Return what has been counted since `before`."""
        return InterfaceCounters(
            self.bytes_sent - before.bytes_sent,
            self.packets_sent - before.packets_sent,
            self.dropped - before.dropped,
            self.flows - before.flows,
        )


def parse(text: str) -> dict[str, InterfaceCounters]:
    """Read the output of COMMAND; interfaces without a queue are left out."""
    return {
        queue["dev"]: InterfaceCounters(queue["bytes"], queue["packets"], queue["drops"])
        for queue in json.loads(text)
        if queue.get("root") and queue["kind"] != "noqueue"
    }
