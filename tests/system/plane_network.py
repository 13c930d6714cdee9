# SPDX-License-Identifier: Apache-2.0
"""Topologies of bridges in namespaces of this process, for communicators whose ranks are threads of it.

The same values as in a lab, so the lab's faults can be done to them, but up in a fraction of a second.
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
        """`plane_network` makes these. `nodes` are namespaces by name, of hosts and switches."""
        self.topology = topology
        self._nodes = nodes

    def plane(self, name: str) -> Plane:
        return self.topology.plane(name)

    def do(self, steps: Iterable[Step]) -> None:
        """Carry out orders, each inside its node."""
        for step in steps:
            with inside(self._nodes[step.node]):
                subprocess.run(step.tool.value, input=step.orders, text=True, check=True)

    @contextmanager
    def ready_for(self, fault: Fault) -> Iterator[None]:
        """Prepare a fault that is then injected and repaired by `do`; in the end it is repaired."""
        assert fault.process is None
        self.do(fault.before)
        try:
            yield
        finally:
            self.do((*fault.repair, *fault.after))

    def at(self, rank: int) -> int:
        """The namespace of a rank's host."""
        return self.of(self.topology.hosts[rank])

    def of(self, node: str) -> int:
        """The namespace of a host or switch."""
        return self._nodes[node]

    def rails(self, rank: int) -> str:
        """A rank's rails, as it gives them to `init`."""
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
        """Run `work` on every rank, each in a thread in its host's namespace, beside the block.

        Rank `but` is somewhere else.
        """
        size = len(self.topology.hosts)
        meeting = meeting or StaticJob(size)

        def body(rank: int) -> Result:
            with inside(self.at(rank)), meeting.communicator(rank, self.rails(rank), **options) as comm:
                return work(comm)

        with ThreadPoolExecutor(size) as pool:
            yield [pool.submit(body, rank) for rank in range(size) if rank != but]

    def run(self, work: Callable[[Communicator], Result], **options: object) -> list[Result]:
        """Run `work` on every rank and return what they return, by rank."""
        with self.ranks(work, **options) as futures:
            return [future.result(2 * DEADLINE_S) for future in futures]


@contextmanager
def plane_network(ranks: int, rails: Sequence[str], *, guarded: bool = False) -> Iterator[PlaneNetwork]:
    """Lay the links of `ranks` hosts on one plane per kind of rail, unshaped.

    Bridges that are `guarded` let hosts send only as themselves, as those of a lab do.
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
    """What `ip -batch` has to do, by node: switches first, who make the links."""
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
