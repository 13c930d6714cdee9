# SPDX-License-Identifier: Apache-2.0
"""A topology is a value: hosts, planes, switches and their links."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from railweave.errors import explain

ALGORITHM = "algorithm"  # of a plane that an in-network algorithm uses: a folder with a manifest
RAIL_KINDS = ("ina", "tcp", "rdma", "netreduce", ALGORITHM)
DEFAULT_RAILS = ("ina", "tcp", "rdma")
P4_KINDS = ("ina", "netreduce", ALGORITHM)  # whose switches run a P4 program
DEFAULT_MTU = 1500


@dataclass(frozen=True)
class Nic:
    """A host's interface on one plane. `switch` and `port` are the other end of its link."""

    host: str
    interface: str
    address: str  # IPv4, no prefix length
    mac: str
    switch: str
    port: int
    mtu: int | None = None  # None: the plane's


@dataclass(frozen=True)
class Trunk:
    """A link between two switches of one plane. `lower` is the switch nearer to the hosts."""

    lower: str
    lower_port: int
    upper: str
    upper_port: int
    rate_bps: int | None = None  # 0 is unshaped; None: the plane's rate
    mtu: int | None = None  # None: the plane's


@dataclass(frozen=True)
class Switch:
    """A switch of a plane. `p4runtime` is the address of its P4Runtime server; empty for a plain bridge."""

    name: str
    p4runtime: str = ""
    device_id: int = 1
    tofino: str = ""  # folder with the program compiled for it, if it is a Tofino under Stratum
    ports: Mapping[str, int] = field(default_factory=dict)  # numbers of its front-panel ports, by name


@dataclass(frozen=True)
class Plane:
    """One physical network: a switch, or several joined by trunks, with one NIC of every host."""

    name: str
    kind: str  # one of RAIL_KINDS
    network: str  # IPv4 network with prefix length; its last /24 or more holds virtual addresses
    rate_bps: int  # of each link; 0 is unshaped
    switches: tuple[Switch, ...]
    nics: tuple[Nic, ...]
    trunks: tuple[Trunk, ...] = ()
    mtu: int = DEFAULT_MTU  # of each link: bytes of an IPv4 packet
    algorithm: str = ""  # of kind algorithm: the name or the folder of the algorithm that its switches run

    def levels(self) -> list[list[Switch]]:
        """Return the switches by their distance from the hosts, nearest first."""
        named = {switch.name: switch for switch in self.switches}
        level = list(dict.fromkeys(nic.switch for nic in self.nics))
        placed: set[str] = set()
        levels = []
        while level:
            levels.append([named[name] for name in named if name in level])
            placed |= set(level)
            level = [t.upper for t in self.trunks if t.lower in level and t.upper not in placed]
        return levels

    def rate_of(self, trunk: Trunk) -> int:
        """Return a trunk's rate in bit/s; 0 is unshaped."""
        return self.rate_bps if trunk.rate_bps is None else trunk.rate_bps

    def mtu_of(self, link: Nic | Trunk) -> int:
        """Return a link's MTU."""
        return self.mtu if link.mtu is None else link.mtu

    def narrowest(self) -> tuple[str, int]:
        """Return the link with the least MTU, by its ends, and that MTU."""
        return min(self.mtus(), key=lambda link: link[1], default=("", self.mtu))

    @property
    def least_mtu(self) -> int:
        """The least MTU of all links."""
        return self.narrowest()[1]

    def mtus(self) -> Iterator[tuple[str, int]]:
        """Yield every link by its ends, and its MTU."""
        for nic in self.nics:
            yield f"{nic.host} to {nic.switch}", self.mtu_of(nic)
        for trunk in self.trunks:
            yield f"{trunk.lower} to {trunk.upper}", self.mtu_of(trunk)


@dataclass(frozen=True)
class Topology:
    """Hosts and the planes that join them."""

    name: str
    hosts: tuple[str, ...]
    planes: tuple[Plane, ...] = field(default=())

    def plane(self, name: str) -> Plane:
        """Return the plane of that name. KeyError names the known planes."""
        for plane in self.planes:
            if plane.name == name:
                return plane
        known = ", ".join(plane.name for plane in self.planes)
        raise KeyError(
            explain(f"plane {name!r} of topology {self.name!r}", f"one of {known}", "correct the name")
        )

    def with_mtu(self, mtu: int) -> Topology:
        """Return the same topology with this MTU on every link."""
        return replace(self, planes=tuple(replace(plane, mtu=mtu) for plane in self.planes))
