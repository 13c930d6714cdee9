# SPDX-License-Identifier: Apache-2.0
"""The switch entries that jobs of ATP need, and the receivers of results. This module does no I/O.

The parameter server is on the first host. A P4 switch in front of a rack sums the packets of the rack's
workers. The host of the server needs no such switch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ipaddress import IPv4Address

from railweave.controller import tables
from railweave.controller.desired import merge
from railweave.controller.routes import routes
from railweave.controller.state import Entry, Multicast, SwitchState, fields
from railweave.topologies.model import Nic, Plane

Rack = dict[int, Nic]  # the workers behind a P4 switch, by rank


def racks(plane: Plane) -> dict[str, Rack]:
    """Return the workers of each P4 switch, without the server's host."""
    p4 = [switch.name for switch in plane.switches if switch.p4runtime]
    ranked = list(enumerate(plane.nics))[1:]
    found = {name: {rank: nic for rank, nic in ranked if nic.switch == name} for name in p4}
    return {name: rack for name, rack in found.items() if rack}


def receivers(plane: Plane) -> list[str]:
    """Return the address to which the results of each rank go.

    It is the address of the rack's first worker. The rack's switch copies results to all workers.
    """
    of = {rank: next(iter(rack.values())).address for rack in racks(plane).values() for rank in rack}
    return [of.get(rank, nic.address) for rank, nic in enumerate(plane.nics)]


def flows(plane: Plane) -> int:
    """Return how many flows meet at the server's link."""
    return len(set(receivers(plane)[1:]))


def states(plane: Plane, jobs: Sequence[int], slots: int) -> Mapping[str, SwitchState]:
    """Return the state that each P4 switch should have.

    All jobs together share `slots` aggregators, a power of two.
    """
    ways, workers = routes(plane), racks(plane)
    found = {}
    for switch in (each.name for each in plane.switches if each.p4runtime):
        flood = tables.flood(ways[switch].nics | ways[switch].tree)
        parts = [SwitchState(ways[switch].entries, frozenset({flood}))]
        if switch in workers:
            parts += [
                _job(plane, job, workers[switch], slots, _way(ways[switch].entries, plane)) for job in jobs
            ]
        found[switch] = merge(parts)
    return found


def _job(plane: Plane, job: int, rack: Rack, slots: int, server_port: int) -> SwitchState:
    """Return a job's entries in one switch. Results arrive at the switch's `server_port`."""
    everybody = sum(1 << rank for rank in rack)
    group, mask = tables.multicast_id(job + 1), {"slot_mask": slots - 1}
    entries: set[Entry] = set()
    for rank, nic in rack.items():
        match = {"ingress_port": nic.port, "source": _number(nic), "job": job}
        bits = {"rank_bit": 1 << rank, "all_ranks": everybody}
        entries.add(Entry("workers", fields(match), "worker", fields(bits | mask)))
        to = {"dst_mac": tables.mac_number(nic.mac), "dst_ip": _number(nic)}
        entries.add(Entry("copies", fields({"job": job, "egress_rid": rank}), "copy", fields(to)))
    match = {"ingress_port": server_port, "source": _number(plane.nics[0]), "job": job}
    match["destination"] = _number(next(iter(rack.values())))
    entries.add(Entry("results", fields(match), "to_workers", fields({"mcast_group": group} | mask)))
    copies = frozenset((nic.port, rank) for rank, nic in rack.items())
    return SwitchState(frozenset(entries), frozenset({Multicast(group, copies)}))


def _way(entries: frozenset[Entry], plane: Plane) -> int:
    """Return the port towards the server."""
    server = fields({"destination": tables.mac_number(plane.nics[0].mac)})
    return next(dict(entry.params)["port"] for entry in entries if entry.match == server)


def _number(nic: Nic) -> int:
    return int(IPv4Address(nic.address))
