# SPDX-License-Identifier: Apache-2.0
"""A cluster of real machines as one YAML file: hosts, NICs, switches, the controller, and access control.

Every machine has the same file. The controller takes its topology from this file, every rank its rails.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from railweave import quantities
from railweave.errors import of_file
from railweave.topologies import serialize
from railweave.topologies.errors import TopologyError
from railweave.topologies.model import DEFAULT_MTU, P4_KINDS, RAIL_KINDS, Nic, Plane, Switch, Topology, Trunk
from railweave.topologies.values import build

_PLACE = re.compile(r"(?P<host>\[[^\]]+\]|[^:\s]+):(?P<port>\d{1,5})", re.ASCII)
_MAC = re.compile(r"([0-9a-f]{2}:){5}[0-9a-f]{2}", re.IGNORECASE | re.ASCII)


@dataclass(frozen=True)
class ClusterNic:
    """A host's NIC on a plane, by its address or by its interface's name."""

    interface: str = ""  # required without an address
    address: str = ""  # IPv4; planes with P4 switches need this and the next three fields
    mac: str = ""
    switch: str = ""  # optional if the plane has only one switch
    port: Any = None  # of that switch: its P4Runtime number, or its name in the switch's `ports`
    mtu: int | None = None  # of its link; default: the plane's


@dataclass(frozen=True)
class ClusterSwitch:
    """A switch with a P4Runtime server or with trunks."""

    p4runtime: str = ""  # HOST:PORT; empty: an ordinary switch
    device_id: int = 1
    tofino: str = ""  # folder with the program compiled for it, if it is a Tofino under Stratum
    ports: Mapping[str, int] = field(default_factory=dict)  # numbers of its front-panel ports, by name


@dataclass(frozen=True)
class ClusterTrunk:
    """A link between switches, as `model.Trunk`. Ports may be names in the switches' `ports`."""

    lower: str
    lower_port: Any
    upper: str
    upper_port: Any
    rate_bps: int | None = None
    mtu: int | None = None


@dataclass(frozen=True)
class ClusterPlane:
    """One physical network."""

    network: str  # IPv4 with prefix length; if switches aggregate, the network's last /24 must be free
    kind: str = ""  # of its rails; default: the plane's name
    algorithm: str = ""  # of kind algorithm: its name, or the path of its folder on all machines
    rate: Any = 0  # of every host's link, in bit/s or as 100G; default: the ranks learn it from their calls
    mtu: int = DEFAULT_MTU  # of every link; from 9000 on, packets of the in-network rail have 1,024 lanes
    switches: Mapping[str, ClusterSwitch] = field(default_factory=dict)
    trunks: tuple[ClusterTrunk, ...] = ()


@dataclass(frozen=True)
class TlsFiles:
    """PEM files: the common CA, and this machine's certificate and key. All machines use the same paths."""

    ca: str
    certificate: str
    key: str


@dataclass(frozen=True)
class Cluster:
    """The content of a cluster file."""

    controller: str  # HOST:PORT, as hosts reach it
    planes: Mapping[str, ClusterPlane]
    hosts: Mapping[str, Mapping[str, ClusterNic]]  # by name, then by plane
    tls: TlsFiles | None = None  # None: connections with the controller are in clear
    token: str = ""  # file whose first line hosts must present to the controller
    switch_tls: TlsFiles | None = None  # the controller's for the switches; default: tls

    def topology(self) -> Topology:
        """Return the controller's topology. TopologyError names the invalid place."""
        planes = tuple(_plane(self, name) for name in self.planes)
        topology = Topology("cluster", tuple(self.hosts), planes)
        serialize.validate(topology)
        return topology

    def kind(self, plane: str) -> str:
        """Return the kind of a plane's rails."""
        return self.planes[plane].kind or plane

    def rate_bps(self, plane: str) -> int:
        """Return the rate of a plane's links; 0 if it is not given."""
        given = str(self.planes[plane].rate)
        rate = quantities.rate_bps(given)
        if rate is None:
            raise TopologyError(
                f"planes.{plane}.rate: {given!r}",
                "bit/s as 100G, 400M or a number",
                "correct the rate, or leave it out to let the ranks learn it",
            )
        return rate


def load(path: Path | str) -> Cluster:
    """Read and check a cluster file. TopologyError names file, place, the given value and the remedy.

    Relative paths in the file start at the file's folder.
    """
    try:
        data = serialize.read_yaml(Path(path).read_text(encoding="utf-8"))
        cluster = _built(data)
        folder = Path(path).parent
        return replace(
            cluster,
            planes={name: _with_programs(plane, folder) for name, plane in cluster.planes.items()},
            tls=_in_folder(cluster.tls, folder),
            switch_tls=_in_folder(cluster.switch_tls, folder),
            token=str(folder / cluster.token) if cluster.token else "",
        )
    except (OSError, UnicodeDecodeError, TopologyError) as error:
        raise of_file(TopologyError, path, error, "a cluster file in UTF-8") from error


def _with_programs(plane: ClusterPlane, folder: Path) -> ClusterPlane:
    switches = {
        name: replace(switch, tofino=str(folder / switch.tofino)) if switch.tofino else switch
        for name, switch in plane.switches.items()
    }
    algorithm = str(folder / plane.algorithm) if "/" in plane.algorithm else plane.algorithm
    return replace(plane, switches=switches, algorithm=algorithm)


def _in_folder(tls: TlsFiles | None, folder: Path) -> TlsFiles | None:
    if tls is None:
        return None
    return TlsFiles(*(str(folder / file) for file in (tls.ca, tls.certificate, tls.key)))


def _built(data: Any) -> Cluster:
    cluster = build(Cluster, _with_nics_in_full(data), "cluster")
    _check_place("controller", cluster.controller)
    if cluster.token and cluster.tls is None:
        raise TopologyError(
            "token: is given without tls, and would travel in clear",
            "tls, too",
            "add tls, or remove the token",
        )
    if cluster.switch_tls and cluster.tls is None:
        raise TopologyError(
            "switch_tls: is given without tls, so the controller is open to all", "tls, too", "add tls"
        )
    for what in ("planes", "hosts"):
        if not getattr(cluster, what):
            raise TopologyError(f"{what}: none are given", "one at least", f"add {what}")
    cluster.topology()
    return cluster


def _with_nics_in_full(data: Any) -> Any:
    """Expand a NIC that is one word: an address, or else an interface."""
    hosts = data.get("hosts") if isinstance(data, dict) else None
    if not isinstance(hosts, dict):
        return data
    full = {
        host: {plane: _nic_in_full(nic) for plane, nic in nics.items()} if isinstance(nics, dict) else nics
        for host, nics in hosts.items()
    }
    return {**data, "hosts": full}


def _nic_in_full(nic: Any) -> Any:
    if not isinstance(nic, str):
        return nic
    try:
        return {"address": str(ipaddress.IPv4Address(nic))}
    except ValueError:
        return {"interface": nic}


def _plane(cluster: Cluster, name: str) -> Plane:
    where, plane, kind = f"planes.{name}", cluster.planes[name], cluster.kind(name)
    if kind not in RAIL_KINDS:
        raise TopologyError(
            f"{where}: kind {kind!r}",
            f"one of {', '.join(RAIL_KINDS)}",
            "give `kind`, or name the plane after its kind",
        )
    try:
        network = ipaddress.IPv4Network(plane.network)
    except ValueError as error:
        raise TopologyError(
            f"{where}.network: {error}", "a network such as 10.1.0.0/16", "correct the network"
        ) from None
    for switch, value in plane.switches.items():
        if value.p4runtime:
            _check_place(f"{where}.switches.{switch}.p4runtime", value.p4runtime)
    with_p4 = any(switch.p4runtime for switch in plane.switches.values())
    if kind in P4_KINDS and not with_p4:
        raise TopologyError(
            f"{where}.switches: no P4 switch",
            f"one at least, which rails of kind {kind} need",
            "name it with `p4runtime: HOST:PORT`",
        )
    for host, nics in cluster.hosts.items():
        for other in nics:
            if other not in cluster.planes:
                raise TopologyError(
                    f"hosts.{host}: a NIC on plane {other!r}",
                    f"one of {', '.join(cluster.planes)}",
                    "correct the name",
                )
    nics = {host: nics[name] for host, nics in cluster.hosts.items() if name in nics}
    for host, nic in nics.items():
        _check_nic(f"hosts.{host}.{name}", nic, network)
    return Plane(
        name,
        kind,
        plane.network,
        cluster.rate_bps(name),
        tuple(Switch(switch, **vars(value)) for switch, value in plane.switches.items()),
        tuple(_placed(host, name, nic, plane) for host, nic in nics.items()) if with_p4 else (),
        tuple(_trunk(f"{where}.trunks[{place}]", trunk, plane) for place, trunk in enumerate(plane.trunks)),
        plane.mtu,
        plane.algorithm,
    )


def _trunk(where: str, trunk: ClusterTrunk, plane: ClusterPlane) -> Trunk:
    lower = _port(f"{where}.lower_port", trunk.lower_port, plane.switches.get(trunk.lower))
    upper = _port(f"{where}.upper_port", trunk.upper_port, plane.switches.get(trunk.upper))
    return Trunk(trunk.lower, lower, trunk.upper, upper, trunk.rate_bps, trunk.mtu)


def _port(where: str, given: Any, switch: ClusterSwitch | None) -> int:
    """Return a port's number, also for its front-panel name. A Tofino has a port 0."""
    names = switch.ports if switch else {}
    number = names.get(given) if isinstance(given, str) else given
    first = 0 if switch and switch.tofino else 1
    if type(number) is not int or number < first:
        known = f", or one of {', '.join(names)}" if names else ""
        raise TopologyError(
            f"{where}: {given!r}", f"the number of the switch's port, from {first}{known}", "correct the port"
        )
    return number


def _check_nic(where: str, nic: ClusterNic, network: ipaddress.IPv4Network) -> None:
    if not (nic.interface or nic.address):
        raise TopologyError(
            f"{where}: neither `interface` nor `address`",
            "one by which the host finds its NIC",
            "add one of them",
        )
    try:
        if nic.address and ipaddress.IPv4Address(nic.address) not in network:
            raise TopologyError(
                f"{where}.address: {nic.address}",
                f"an address of the plane's network {network}",
                "correct one of them",
            )
    except ipaddress.AddressValueError:
        raise TopologyError(
            f"{where}.address: {nic.address!r}", "an IPv4 address such as 10.1.0.10", "correct the address"
        ) from None


def _placed(host: str, plane_name: str, nic: ClusterNic, plane: ClusterPlane) -> Nic:
    """Return a NIC of a plane with P4 switches. These need the place of every host."""
    where = f"hosts.{host}.{plane_name}"
    switch = nic.switch or next(iter(plane.switches))
    if not nic.switch and len(plane.switches) > 1:
        raise TopologyError(f"{where}: no `switch`", f"one of {', '.join(plane.switches)}", "add `switch`")
    if switch not in plane.switches:
        raise TopologyError(
            f"{where}.switch: {switch!r}", f"one of {', '.join(plane.switches)}", "correct the name"
        )
    for what, given, remedy in (
        ("address", nic.address, "`ip -4 address` on the host shows it"),
        ("mac", nic.mac, "`ip link` on the host shows it"),
        ("port", nic.port, "the switch's port that the cable is in, from 1"),
    ):
        if given in (None, ""):
            raise TopologyError(
                f"{where}: no `{what}`", "one for each NIC of a plane with P4 switches", f"add it: {remedy}"
            )
    if not _MAC.fullmatch(nic.mac):
        raise TopologyError(
            f"{where}.mac: {nic.mac!r}", "the form 02:00:00:01:00:0a", "copy the address from `ip link`"
        )
    port = _port(f"{where}.port", nic.port, plane.switches[switch])
    return Nic(host, nic.interface, nic.address, nic.mac.lower(), switch, port, nic.mtu)


def _check_place(where: str, given: str) -> None:
    match = _PLACE.fullmatch(given)
    if match is None or not 0 < int(match["port"]) <= 65535:
        raise TopologyError(f"{where}: {given!r}", "HOST:PORT, such as 10.0.0.1:9600", "correct the address")
