# SPDX-License-Identifier: Apache-2.0
"""The virtual addresses of a plane, in its last /24. Switches take the highest, groups the lowest ones."""

from __future__ import annotations

from collections.abc import Collection
from ipaddress import IPv4Network

from railweave.controller.errors import Refused
from railweave.controller.tables import Endpoint, ip_number, virtual_mac
from railweave.errors import explain
from railweave.topologies.model import Plane


class AddressPlan:
    """The addresses of one plane's switches and groups."""

    def __init__(self, plane: Plane) -> None:
        """Assign the switches' addresses; ValueError if the plane's network is full of NICs and switches."""
        network = IPv4Network(plane.network)
        top = int(network.broadcast_address) - 1
        bottom = max(int(network.network_address), top - max(254, 2 * len(plane.switches))) + 1
        nics = {ip_number(nic.address) for nic in plane.nics}
        free = [address for address in range(bottom, top + 1) if address not in nics]
        if len(free) <= len(plane.switches):
            raise ValueError(
                explain(
                    f"plane {plane.name!r}: {network} has no addresses left for groups",
                    "free addresses at its end",
                    "give the plane a larger network",
                )
            )
        names = sorted(switch.name for switch in plane.switches)
        self.switches = {name: endpoint(free.pop()) for name in names}
        self.plane = plane.name
        self._groups = free

    def choose(self, taken: Collection[int]) -> int:
        """Return an address for a group that is not `taken`. Refused names the limit."""
        for address in self._groups:
            if address not in taken:
                return address
        raise Refused(
            f"all {len(self._groups)} group addresses of plane {self.plane!r} are taken",
            "a free address",
            "end a job on this plane",
        )


def endpoint(ip: int) -> Endpoint:
    """Return the Endpoint of a virtual address."""
    return Endpoint(virtual_mac(ip), ip)
