# SPDX-License-Identifier: Apache-2.0
"""Topologies of bridges in namespaces of this process, for ranks that are threads of this process.

A network starts in a fraction of a second. It has the same topology values as a lab, so the lab's faults can
be injected.
"""

from __future__ import annotations

import subprocess
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TypeVar

from protocol.jobs import DEADLINE_S, StaticJob
from system.namespaces import inside, namespace, path_of

from railweave.hosts.communicator import Communicator
from railweave.topologies.lab.faults import Fault, Step, Tool
from railweave.topologies.lab.namespaces import BRIDGE, bridge_guard, interface_of_port, neighbours
from railweave.topologies.model import Plane, Topology
from railweave.topologies.planes import planes

Result = TypeVar("Result")


class PlaneNetwork:
    """A running network of hosts h1, h2, … and one bridge per plane."""

    def __init__(self, topology: Topology, nodes: dict[str, int]) -> None:
        """Take the namespaces of hosts and switches by name (`nodes`). `plane_network` calls this."""
        self.topology = topology
        self._nodes = nodes

    def plane(self, name: str) -> Plane:
        return self.topology.plane(name)

    def do(self, steps: Iterable[Step]) -> None:
        """Carry out steps, each inside its node."""
        for step in steps:
            with inside(self._nodes[step.node]):
                subprocess.run(step.tool.value, input=step.orders, text=True, check=True)

    @contextmanager
    def ready_for(self, fault: Fault) -> Iterator[None]:
        """Prepare a fault for injection and repair by `do`. Repair it when the block ends."""
        assert fault.process is None
        self.do(fault.before)
        try:
            yield
        finally:
            self.do((*fault.repair, *fault.after))

    def at(self, rank: int) -> int:
        """Return the namespace of a rank's host."""
        return self.of(self.topology.hosts[rank])

    def of(self, node: str) -> int:
        """Return the namespace of a host or switch."""
        return self._nodes[node]

    def rails(self, rank: int) -> str:
        """Return a rank's rails, in the form that `init` takes."""
        host = self.topology.hosts[rank]
        nics = [(plane, nic) for plane in self.topology.planes for nic in plane.nics if nic.host == host]
        return ",".join(f"{plane.name}={plane.kind}@{nic.interface}" for plane, nic in nics)

    @contextmanager
    def ranks(
        self,
        work: Callable[[Communicator], Result],
        meeting: StaticJob | None = None,
        but: int | None = None,
        **options: object,
    ) -> Iterator[list[Future[Result]]]:
        """Run `work` on every rank while the block runs, each in a thread in its host's namespace.

        Rank `but` gets no thread: it runs somewhere else.
        """
        size = len(self.topology.hosts)
        meeting = meeting or StaticJob(size)

        def body(rank: int) -> Result:
            with inside(self.at(rank)), meeting.communicator(rank, self.rails(rank), **options) as comm:
                return work(comm)

        with ThreadPoolExecutor(size) as pool:
            yield [pool.submit(body, rank) for rank in range(size) if rank != but]

    def run(self, work: Callable[[Communicator], Result], **options: object) -> list[Result]:
        """Run `work` on every rank, and return the results by rank."""
        with self.ranks(work, **options) as futures:
            return [future.result(2 * DEADLINE_S) for future in futures]


@contextmanager
def plane_network(ranks: int, rails: Sequence[str], *, guarded: bool = False) -> Iterator[PlaneNetwork]:
    """Make unshaped links of `ranks` hosts on one plane per kind of rail.

    If the bridges are `guarded`, hosts can send only with their own addresses, as in a lab.
    """
    made = planes(ranks, rails, 0)
    bridges = tuple(
        replace(plane, switches=tuple(replace(switch, p4runtime="") for switch in plane.switches))
        for plane in made.planes
    )
    topology = replace(made, planes=bridges)
    with ExitStack() as stack:
        switches = [switch.name for plane in topology.planes for switch in plane.switches]
        nodes = {name: stack.enter_context(namespace()) for name in (*topology.hosts, *switches)}
        network = PlaneNetwork(topology, nodes)
        network.do(Step(node, Tool.IP, "\n".join(lines) + "\n") for node, lines in _lines(topology, nodes))
        if guarded:
            network.do(
                Step(switch.name, Tool.NFT, bridge_guard(plane, switch.name))
                for plane in topology.planes
                for switch in plane.switches
            )
        yield network


def _lines(topology: Topology, nodes: dict[str, int]) -> Iterable[tuple[str, list[str]]]:
    """Return the commands for `ip -batch`, by node. Switches come first, because they make the links."""
    of_switches: dict[str, list[str]] = defaultdict(list)
    of_hosts = {host: ["link set lo up"] for host in topology.hosts}
    for plane in topology.planes:
        for switch in plane.switches:
            of_switches[switch.name] += [
                f"link add name {BRIDGE} type bridge stp_state 0 forward_delay 0 mcast_snooping 0",
                f"link set {BRIDGE} up",
            ]
        for nic in plane.nics:
            port = interface_of_port(nic.switch, nic.port)
            of_switches[nic.switch] += [
                f"link add {port} type veth peer name {nic.interface} address {nic.mac} "
                f"netns {path_of(nodes[nic.host])}",
                f"link set {port} master {BRIDGE} up",
            ]
            of_hosts[nic.host] += [
                f"address add {nic.address}/{plane.network.rpartition('/')[2]} dev {nic.interface}",
                f"link set {nic.interface} up",
                *neighbours(nic, plane.nics),
            ]
    return [*of_switches.items(), *of_hosts.items()]
