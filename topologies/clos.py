# SPDX-License-Identifier: Apache-2.0
"""Topologies whose in-network planes have levels: `leaf-spine`, `racks`, `fat-tree` (folded Clos networks).

Only planes whose switches run a P4 program get levels. Every other plane is one bridge, as in the `planes`
topology. All switches of a plane with levels are P4 switches. `racks` is an exception: some of its switches
are bridges, and only planes of kind ina get levels. Hosts are numbered rack by rack.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from railweave.topologies.errors import TopologyError
from railweave.topologies.model import DEFAULT_RAILS, P4_KINDS, Plane, Switch, Topology, Trunk
from railweave.topologies.planes import (
    DEFAULT_RATE_BPS,
    MAX_FAN_IN,
    MAX_HOSTS,
    MAX_PLANES,
    P4RUNTIME_PORT,
    check_rails,
    interface_label,
    kind_and_algorithm,
    network_of,
    nic,
    plane_names,
    rate_of_each_plane,
    single_switch,
)

MAX_SWITCHES = 4 * 254  # of a plane
SPINES = ("plain", "ina")  # of mixed racks
LONG = {"l": "leaf", "s": "spine", "e": "edge", "a": "agg", "c": "core"}


@dataclass(frozen=True)
class Level:
    """The switches of one level: their letter, such as `l` for leaves, and their number."""

    letter: str
    count: int


@dataclass(frozen=True)
class Fabric:
    """A plane's shape: its levels from the hosts up, hosts per lowest switch, links between levels.

    `uplinks` lists pairs of (level, number) of the lower switch and number of the upper, one level above.
    """

    levels: tuple[Level, ...]
    hosts_per_rack: int
    uplinks: tuple[tuple[int, int, int], ...]
    bridges: frozenset[tuple[int, int]] = frozenset()  # (level, number) of switches that cannot aggregate

    @property
    def hosts(self) -> int:
        """The number of hosts."""
        return self.levels[0].count * self.hosts_per_rack


def leaf_spine(
    racks: int = 2,
    hosts: int = 4,
    spines: int = 2,
    *,
    rails: Sequence[str] = DEFAULT_RAILS,
    rates: int | Sequence[int] = DEFAULT_RATE_BPS,
    uplink_bps: int | None = None,
) -> Topology:
    """Return `racks` leaves with `hosts` hosts each. Every leaf is connected to each of `spines` spines.

    `rates` is as in `planes`. `uplink_bps` is the rate of links between switches, by default the hosts' rate.
    Raises TopologyError for invalid counts.
    """
    _positive(racks=racks, hosts=hosts, spines=spines)
    uplinks = tuple((0, rack, spine) for rack in range(racks) for spine in range(spines))
    fabric = Fabric((Level("l", racks), Level("s", spines)), hosts, uplinks)
    return _topology("leaf-spine", fabric, rails, rates, uplink_bps)


def mixed_racks(
    racks: int = 4,
    hosts: int = 4,
    ina: int = 2,
    spine: str = "plain",
    *,
    rails: Sequence[str] = DEFAULT_RAILS,
    rates: int | Sequence[int] = DEFAULT_RATE_BPS,
    uplink_bps: int | None = None,
) -> Topology:
    """Return `racks` leaves with `hosts` hosts each below one spine. The first `ina` leaves aggregate.

    The other leaves are bridges. The spine is also a bridge unless `spine` is `ina`. `rates` and `uplink_bps`
    are as in `leaf_spine`. Raises TopologyError for invalid counts.
    """
    _positive(racks=racks, hosts=hosts)
    if not 0 <= ina <= racks:
        raise TopologyError(f"{ina} ina racks", f"0 to {racks}", "correct `ina=`")
    if spine not in SPINES:
        raise TopologyError(f"a spine of kind {spine!r}", " or ".join(SPINES), "correct `spine=`")
    bridges = {(0, rack) for rack in range(ina, racks)} | ({(1, 0)} if spine == "plain" else set())
    uplinks = tuple((0, rack, 0) for rack in range(racks))
    fabric = Fabric((Level("l", racks), Level("s", 1)), hosts, uplinks, frozenset(bridges))
    return _topology("racks", fabric, rails, rates, uplink_bps)


def fat_tree(
    k: int = 4,
    *,
    pods: int = 0,
    edges: int = 0,
    aggs: int = 0,
    cores: int = 0,
    hosts: int = 0,
    rails: Sequence[str] = DEFAULT_RAILS,
    rates: int | Sequence[int] = DEFAULT_RATE_BPS,
    uplink_bps: int | None = None,
) -> Topology:
    """Return the three-level fat tree of k-port switches (Al-Fares et al., SIGCOMM 2008), or a part of one.

    By default there are k pods of k/2 edge and k/2 aggregation switches, k/2 hosts per edge switch and (k/2)²
    cores. `pods`, `edges` and `aggs` (per pod), `cores` and `hosts` (per edge switch) replace these. Every
    core is connected to one aggregation switch of each pod. Raises TopologyError for invalid counts.
    """
    if k < 2 or k % 2:
        raise TopologyError(f"a fat tree with k={k}", "an even number from 2", "correct `k=`")
    half = k // 2
    pods, edges, aggs, hosts = pods or k, edges or half, aggs or half, hosts or half
    cores = cores or aggs * half
    _positive(pods=pods, edges=edges, aggs=aggs, cores=cores, hosts=hosts)
    if cores % aggs:
        raise TopologyError(
            f"{cores} cores for {aggs} aggregation switches per pod",
            f"a multiple of {aggs}",
            "correct `cores=` or `aggs=`",
        )
    per_agg = cores // aggs
    uplinks = [
        (0, pod * edges + edge, pod * aggs + agg)
        for pod in range(pods)
        for edge in range(edges)
        for agg in range(aggs)
    ]
    uplinks += [
        (1, pod * aggs + agg, agg * per_agg + core)
        for pod in range(pods)
        for agg in range(aggs)
        for core in range(per_agg)
    ]
    levels = Level("e", pods * edges), Level("a", pods * aggs), Level("c", cores)
    return _topology("fat-tree", Fabric(levels, hosts, tuple(uplinks)), rails, rates, uplink_bps)


def _topology(
    name: str, fabric: Fabric, rails: Sequence[str], rates: int | Sequence[int], uplink_bps: int | None
) -> Topology:
    check_rails(rails)
    _check(fabric)
    hosts = tuple(f"h{number}" for number in range(1, fabric.hosts + 1))
    names = plane_names(rails)
    levelled = ("ina",) if name == "racks" else P4_KINDS
    alone = sum(kind_and_algorithm(rail)[0] in levelled for rail in rails) == 1
    planes = []
    per_plane = zip(names, rails, rate_of_each_plane(rates, len(rails)), strict=True)
    for index, (plane, rail, rate) in enumerate(per_plane):
        kind = kind_and_algorithm(rail)[0]
        if kind in levelled:
            label = _long_name if alone else _short_name(interface_label(index, plane, kind))
            planes.append(_plane(index, plane, rail, rate, uplink_bps, fabric, hosts, label))
        else:
            planes.append(single_switch(index, plane, rail, rate, hosts))
    return Topology(name, hosts, tuple(planes))


def _plane(
    index: int,
    name: str,
    rail: str,
    rate_bps: int,
    uplink_bps: int | None,
    fabric: Fabric,
    hosts: Sequence[str],
    label: Callable[[str, int], str],
) -> Plane:
    network = index + 1
    kind, algorithm = kind_and_algorithm(rail)
    names = [[label(level.letter, number + 1) for number in range(level.count)] for level in fabric.levels]
    places = [(level, number) for level, of in enumerate(fabric.levels) for number in range(of.count)]
    switches = tuple(
        Switch(
            names[level][number],
            ""
            if (level, number) in fabric.bridges
            else f"{_switch_address(network, place)}:{P4RUNTIME_PORT}",
            place,
        )
        for place, (level, number) in enumerate(places, start=1)
    )
    nics, next_port = [], dict.fromkeys((switch.name for switch in switches), 1)

    def port_of(switch: str) -> int:
        next_port[switch] += 1
        return next_port[switch] - 1

    for number, host in enumerate(hosts):
        leaf = names[0][number // fabric.hosts_per_rack]
        nics.append(nic(network, interface_label(index, name, kind), host, number + 1, leaf, port_of(leaf)))
    trunks = []
    for level, lower, upper in fabric.uplinks:
        below, above = names[level][lower], names[level + 1][upper]
        trunks.append(Trunk(below, port_of(below), above, port_of(above), uplink_bps))
    links = tuple(nics), tuple(trunks)
    return Plane(name, kind, network_of(network), rate_bps, switches, *links, algorithm=algorithm)


def _switch_address(network: int, place: int) -> str:
    """Return a management address. Each /24 has 254 switches of a plane, the next 254 MAX_PLANES later."""
    return f"10.255.{network + MAX_PLANES * ((place - 1) // 254)}.{(place - 1) % 254 + 1}"


def _long_name(letter: str, number: int) -> str:
    return f"{LONG[letter]}{number}"


def _short_name(plane: str) -> Callable[[str, int], str]:
    """Return short names: switch and port must fit into the 15 characters of an interface's name."""
    short = plane.replace("netreduce", "nr")
    return lambda letter, number: f"{short}-{letter}{number}"


def _positive(**counts: int) -> None:
    for what, count in counts.items():
        if count < 1:
            raise TopologyError(f"{count} {what}", "at least 1", f"correct `{what}=`")


def _check(fabric: Fabric) -> None:
    switches = sum(level.count for level in fabric.levels)
    if fabric.hosts > MAX_HOSTS:
        raise TopologyError(
            f"{fabric.hosts} hosts", f"{MAX_HOSTS} at most, for which there are addresses", "take fewer hosts"
        )
    if switches > MAX_SWITCHES:
        raise TopologyError(
            f"{switches} switches",
            f"{MAX_SWITCHES} at most, for which there are addresses",
            "take fewer switches",
        )
    if fabric.hosts_per_rack > MAX_FAN_IN:
        raise TopologyError(
            f"{fabric.hosts_per_rack} hosts per rack",
            f"{MAX_FAN_IN} at most, whose contributions one switch adds up",
            "take more racks with fewer hosts",
        )
