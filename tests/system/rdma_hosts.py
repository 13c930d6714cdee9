# SPDX-License-Identifier: Apache-2.0
"""Hosts on a bridge, in namespaces of this process."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TypeVar

from system.namespaces import inside, ip, namespace, path_of

from railweave.topologies.lab import counters
from railweave.topologies.lab.shaping import counting_queue

NIC = "eth0"
BRIDGE_MAC = "02:00:00:03:00:64"

Result = TypeVar("Result")


@dataclass(frozen=True)
class Hosts:
    """Rank r has address 10.3.0.(r+1) on NIC in its namespace; port{r} of the bridge leads to it."""

    namespaces: tuple[int, ...]
    switch: int

    def address(self, rank: int) -> str:
        return f"10.3.0.{rank + 1}"

    def mac(self, rank: int) -> str:
        return f"02:00:00:03:00:{rank + 1:02x}"

    def lay(self, rank: int) -> None:
        """Connect a host to the bridge."""
        peer = ("peer", "name", NIC, "address", self.mac(rank), "netns", path_of(self.namespaces[rank]))
        with inside(self.switch):
            ip("link", "add", f"port{rank}", "type", "veth", *peer)
            ip("link", "set", f"port{rank}", "master", "bridge", "up")
        with inside(self.namespaces[rank]):
            ip("address", "add", f"{self.address(rank)}/24", "dev", NIC)
            ip("link", "set", NIC, "up")
            subprocess.run(["tc", *counting_queue(NIC).split()], check=True)

    def bytes_sent(self, rank: int) -> int:
        """Return the bytes that the interface's queue counts: it counts the frames of a super-packet."""
        with inside(self.namespaces[rank]):
            done = subprocess.run(counters.COMMAND, check=True, capture_output=True, text=True)
        return counters.parse(done.stdout)[NIC].bytes_sent


@contextmanager
def bridged(count: int) -> Iterator[Hosts]:
    """Connect `count` hosts to a bridge."""
    with ExitStack() as stack:
        switch = stack.enter_context(namespace())
        hosts = Hosts(tuple(stack.enter_context(namespace()) for _ in range(count)), switch)
        with inside(switch):
            # Without this address, the bridge takes the MAC of a port, which changes with its ports.
            ip("link", "add", "bridge", "address", BRIDGE_MAC, "type", "bridge")
            ip("link", "set", "bridge", "up")
        for rank in range(count):
            hosts.lay(rank)
        yield hosts
