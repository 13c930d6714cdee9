# SPDX-License-Identifier: Apache-2.0
"""The switch entries that jobs of ATP need, and the receivers of results.

The parameter server is on the first host. A P4 switch in front of a rack sums the packets of the rack's
workers. The host of the server needs no such switch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from railweave.controller.routes import routes
from railweave.p4src.config import CONFIG
from railweave.sdk import (
    Entry,
    Job,
    Multicast,
    Nic,
    Plane,
    SwitchState,
    bridge,
    entry,
    ip_number,
    mac_number,
    union,
)
from railweave.sdk.states import FIRST_GROUP

SLOTS = CONFIG["SLOTS"]  # aggregators of a switch, by default all for these jobs

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


def crossings(plane: Plane) -> float:
    """Return how many flows meet at the server's link: one per aggregating rack, and per other worker."""
    return len(set(receivers(plane)[1:]))


def wanted(plane: Plane, jobs: Sequence[Job]) -> Mapping[str, SwitchState]:
    """Return the state that each P4 switch should have. All jobs share the aggregators."""
    ways, workers = routes(plane), racks(plane)
    found = {}
    for switch in (each.name for each in plane.switches if each.p4runtime):
        parts = [bridge(plane, switch)]
        if switch in workers:
            port = _way(ways[switch].entries, plane)
            parts += [_job(plane, job, workers[switch], port) for job in jobs]
        found[switch] = union(*parts)
    return found


def _job(plane: Plane, job: Job, rack: Rack, server_port: int) -> SwitchState:
    """Return a job's entries in one switch. Results arrive at the switch's `server_port`."""
    everybody = sum(1 << rank for rank in rack)
    group, mask = FIRST_GROUP + job.number, {"slot_mask": int(job.options.get("slots", SLOTS)) - 1}
    entries = set()
    for rank, nic in rack.items():
        match = {"ingress_port": nic.port, "source": ip_number(nic.address), "job": job.number}
        entries.add(entry("workers", match, "worker", {"rank_bit": 1 << rank, "all_ranks": everybody} | mask))
        to = {"dst_mac": mac_number(nic.mac), "dst_ip": ip_number(nic.address)}
        entries.add(entry("copies", {"job": job.number, "egress_rid": rank}, "copy", to))
    match = {"ingress_port": server_port, "source": ip_number(plane.nics[0].address), "job": job.number}
    match["destination"] = ip_number(next(iter(rack.values())).address)
    entries.add(entry("results", match, "to_workers", {"mcast_group": group} | mask))
    copies = frozenset((nic.port, rank) for rank, nic in rack.items())
    return SwitchState(frozenset(entries), frozenset({Multicast(group, copies)}))


def _way(entries: frozenset[Entry], plane: Plane) -> int:
    """Return the port towards the server."""
    server = (("destination", mac_number(plane.nics[0].mac)),)
    return next(int(dict(entry.params)["port"]) for entry in entries if entry.match == server)
