# SPDX-License-Identifier: Apache-2.0
"""Topologies as YAML files, read strictly: an unknown key or a link without a peer is an error."""

from __future__ import annotations

import ipaddress
from collections.abc import Hashable, Iterable
from pathlib import Path
from typing import Any

import yaml

from railweave.errors import of_file
from railweave.topologies.errors import TopologyError
from railweave.topologies.model import ALGORITHM, RAIL_KINDS, Plane, Switch, Topology
from railweave.topologies.values import build, plain

LEAST_MTU, MOST_MTU = 68, 65535  # of IPv4 (RFC 791), and of a link between namespaces


def to_yaml(topology: Topology) -> str:
    """Write a topology as YAML. `from_yaml` returns an equal value."""
    return yaml.safe_dump(plain(topology), sort_keys=False, allow_unicode=True)


def from_yaml(text: str) -> Topology:
    """Read a topology from YAML. TopologyError names the place and the expected value."""
    topology = build(Topology, read_yaml(text), "topology")
    validate(topology)
    return topology


def read_yaml(text: str) -> Any:
    """Read YAML. TopologyError if the text is invalid, or if a mapping has a key twice."""
    try:
        return yaml.load(text, _Loader)  # noqa: S506 - a SafeLoader
    except yaml.YAMLError as error:
        raise TopologyError(f"not YAML: {error}", "YAML", "correct this line") from error


class _Loader(yaml.SafeLoader):
    """A strict loader. PyYAML accepts repeated keys, and reads MACs such as 52:54:00:12:34:56 as numbers."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """Refuse a key that occurs twice."""
        keys = [key.value for key, _ in node.value]
        for place, key in enumerate(keys):
            if key in keys[:place]:
                line = node.value[place][0].start_mark.line + 1
                raise TopologyError(
                    f"line {line}: {key!r} is there twice", "each key once", "remove or rename one"
                )
        return super().construct_mapping(node, deep)

    def construct_yaml_int(self, node: yaml.ScalarNode) -> Any:
        """Keep base-60 numbers such as 1:30 as text, because such values are never meant as numbers."""
        return node.value if ":" in node.value else super().construct_yaml_int(node)


_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_yaml_int)


def load(path: Path | str) -> Topology:
    """Read a topology file. TopologyError also names the file."""
    try:
        return from_yaml(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, TopologyError) as error:
        raise of_file(TopologyError, path, error, "a topology file in UTF-8") from error


def validate(topology: Topology) -> None:
    """Raise TopologyError if names repeat, link ends are unknown, or addresses are outside their network."""
    _unique("host", topology.hosts)
    _unique("plane", [plane.name for plane in topology.planes])
    _unique("switch", [switch.name for plane in topology.planes for switch in plane.switches])
    for plane in topology.planes:
        _validate_plane(topology, plane)


def _validate_plane(topology: Topology, plane: Plane) -> None:
    where = f"plane {plane.name!r}"
    if plane.kind not in RAIL_KINDS:
        raise TopologyError(
            f"{where}: kind {plane.kind!r}", f"one of {', '.join(RAIL_KINDS)}", "correct the kind"
        )
    if bool(plane.algorithm) != (plane.kind == ALGORITHM):
        raise TopologyError(
            f"{where}: kind {plane.kind} with algorithm {plane.algorithm!r}",
            f"an algorithm on planes of kind {ALGORITHM}, and on no others",
            "correct `kind` or `algorithm`",
        )
    if plane.rate_bps < 0:
        raise TopologyError(
            f"{where}: rate_bps is {plane.rate_bps}", "0 (unshaped) or more", "correct the rate"
        )
    for link, mtu in plane.mtus():
        if not LEAST_MTU <= mtu <= MOST_MTU:
            raise TopologyError(
                f"{where}: link {link} has an MTU of {mtu}",
                f"{LEAST_MTU} to {MOST_MTU} bytes",
                "correct `mtu`",
            )
    for trunk in plane.trunks:
        if plane.rate_of(trunk) < 0 or trunk.lower == trunk.upper:
            raise TopologyError(
                f"{where}: {trunk}",
                "two different switches and a rate of 0 (unshaped) or more",
                "correct the trunk",
            )
    try:
        network = ipaddress.IPv4Network(plane.network)
        outside = [nic.address for nic in plane.nics if ipaddress.IPv4Address(nic.address) not in network]
    except ValueError as error:
        raise TopologyError(
            f"{where}: {error}", "IPv4 addresses and a network such as 10.1.0.0/16", "correct the address"
        ) from error
    if outside:
        raise TopologyError(
            f"{where}: {', '.join(outside)}", f"addresses of {plane.network}", "correct the addresses"
        )
    ends = [(nic.switch, nic.port) for nic in plane.nics]
    for trunk in plane.trunks:
        ends += [(trunk.lower, trunk.lower_port), (trunk.upper, trunk.upper_port)]
    _unique(f"{where}: switch port", ends)
    pairs = [tuple(sorted((trunk.lower, trunk.upper))) for trunk in plane.trunks]
    _unique(f"{where}: trunk between", pairs)
    _unique(f"{where}: address", [nic.address for nic in plane.nics])
    _unique(f"{where}: MAC", [nic.mac for nic in plane.nics])
    for switch in plane.switches:
        if switch.tofino:
            _validate_tofino(where, plane, switch, [port for name, port in ends if name == switch.name])
    _known(f"{where}: host", [nic.host for nic in plane.nics], topology.hosts)
    _known(f"{where}: switch", [switch for switch, _ in ends], [switch.name for switch in plane.switches])


def _validate_tofino(where: str, plane: Plane, switch: Switch, ports: list[int]) -> None:
    """Require ports of one pipe. Each has 128 ports (bf-drivers, DEV_PORT_TO_PIPE) and its own registers."""
    where = f"{where}: switch {switch.name!r}"
    if plane.kind != "ina":
        raise TopologyError(
            f"{where}: a Tofino on a plane of kind {plane.kind}",
            "a plane of kind ina",
            "remove `tofino`, or correct the kind",
        )
    if switch.device_id < 1:
        raise TopologyError(
            f"{where}: device_id {switch.device_id}",
            "1 or more, as Stratum numbers its nodes",
            "write the node's number from Stratum's chassis config",
        )
    if len({port >> 7 for port in ports}) > 1:
        raise TopologyError(
            f"{where}: ports {', '.join(map(str, sorted(ports)))}",
            "ports of one pipe p, from 128 p to 128 p + 127, because pipes do not share registers",
            "move cables to one pipe",
        )


def _unique(what: str, values: Iterable[Any]) -> None:
    seen = set()
    for value in values:
        if value in seen:
            raise TopologyError(f"{what} {value!r} occurs twice", "different ones", "correct or remove one")
        seen.add(value)


def _known(what: str, used: Iterable[str], known: Iterable[str]) -> None:
    for name in used:
        if name not in (names := list(known)):
            raise TopologyError(f"{what} {name!r}", f"one of {', '.join(names)}", "correct the name")
