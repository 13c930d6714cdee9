# SPDX-License-Identifier: Apache-2.0
"""Hosts with an IP stack on an embedded switch. Each host has its own network namespace."""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from dataplane import wire
from dataplane.harness import Program, process

_T = TypeVar("_T")
PREFIX = "10.77.0."


@dataclass(frozen=True)
class Host:
    """A host. The host on port n has the address 10.77.0.n."""

    namespace: str
    port: int

    @property
    def address(self) -> str:
        return f"{PREFIX}{self.port}"

    def run(self, call: Callable[[], _T]) -> _T:
        """Call a function inside the host's namespace. Sockets that it makes belong to the host."""
        return wire.in_namespace(self.namespace, call)


@contextlib.contextmanager
def network(
    program: Program, count: int = 2, options: tuple[str, ...] = ()
) -> Iterator[tuple[str, list[Host]]]:
    """Start an embedded switch with a program. Yield its namespace and the hosts on ports 1…n."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        switch = stack.enter_context(wire.namespace("switch"))
        hosts = [Host(stack.enter_context(wire.namespace(f"host{n}")), n) for n in range(1, count + 1)]
        for host in hosts:
            connect(switch, host)
        command = [sys.executable, "-m", "railweave.switch", "--grpc", f"unix:{folder}/grpc", *options]
        command += ["--program", str(program.json), "--p4info", str(program.p4info)]
        for host in hosts:
            command += ["--interface", f"{host.port}@s{host.port}"]
        stack.enter_context(process(["ip", "netns", "exec", switch, *command], Path(folder, "log")))
        yield switch, hosts


def connect(switch: str, host: Host) -> None:
    """Create the link between a switch's port and its host."""
    link = f"s{host.port}"
    peer = ["peer", "name", "eth0", "netns", host.namespace]
    wire.ip("-n", switch, "link", "add", link, "type", "veth", *peer)
    wire.ip("-n", switch, "link", "set", link, "up")
    wire.ip("-n", host.namespace, "link", "set", "eth0", "address", f"02:00:00:00:77:0{host.port}", "up")
    wire.ip("-n", host.namespace, "address", "add", f"{host.address}/24", "dev", "eth0")
