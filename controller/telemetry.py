# SPDX-License-Identifier: Apache-2.0
"""Read the switches' P4 counters, by their names in the program."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine, Iterable
from typing import Any

import finsy as fy

from railweave.controller.algorithms import AlgorithmSwitch
from railweave.controller.errors import InvalidRequest, SwitchUnavailable
from railweave.controller.fabric import Fabric
from railweave.controller.jobs import Group
from railweave.controller.managed import ManagedSwitch
from railweave.controller.rings import RingSwitch
from railweave.controller.southbound import SwitchLink
from railweave.controller.tables import DROPS, FORGED_SOURCES
from railweave.v1 import controller_pb2 as pb


async def switch_counters(fabric: Fabric, groups: Iterable[Group], plane: str) -> pb.SwitchCountersResponse:
    """Read the counters of a plane's P4 switches ('': of all). InvalidRequest for a plane without any."""
    running = list(groups)
    asked = [
        *(of_switch(switch, running) for switch in fabric.switches(plane)),
        *of_ring_switches(fabric, plane),
        *of_algorithm_switches(fabric, plane),
    ]
    if not asked:
        raise InvalidRequest(
            f"plane {plane!r} has no P4 switch",
            f"one of {', '.join(p.name for p in fabric.topology.planes)}",
            "name another",
        )
    return pb.SwitchCountersResponse(switches=await asyncio.gather(*asked))


def of_algorithm_switches(fabric: Fabric, plane: str = "") -> list[Coroutine[Any, Any, pb.SwitchCounters]]:
    """Read the counters that the algorithm's manifest names, of the switches that run it."""
    return [_of_algorithm(switch) for switch in fabric.algorithm_switches(plane)]


async def _of_algorithm(switch: AlgorithmSwitch) -> pb.SwitchCounters:
    counters = pb.SwitchCounters(plane=switch.plane.name, name=switch.name)
    try:
        for table in switch.counters:
            for entry, count in await switch.link.packets(table):
                if isinstance(entry.action, fy.P4TableAction):
                    counters.packets[entry.action.name] += count
    except SwitchUnavailable as unavailable:
        return pb.SwitchCounters(plane=switch.plane.name, name=switch.name, problem=str(unavailable))
    return counters


def of_ring_switches(fabric: Fabric, plane: str = "") -> list[Coroutine[Any, Any, pb.SwitchCounters]]:
    """Read all counters of the switches with the program netreduce."""
    return [_of_rings(switch) for switch in fabric.rings_of(plane)]


async def _of_rings(switch: RingSwitch) -> pb.SwitchCounters:
    counters = pb.SwitchCounters(plane=switch.plane.name, name=switch.name, slots=switch.slots.slots)
    counters.slots_used = sum(taken.size for taken in switch.slots.taken.values())
    try:
        counters.packets.update(await _packets(switch.link, "connections"))
    except SwitchUnavailable as unavailable:
        return pb.SwitchCounters(plane=switch.plane.name, name=switch.name, problem=str(unavailable))
    return counters


async def of_switch(switch: ManagedSwitch, groups: Iterable[Group]) -> pb.SwitchCounters:
    """Read all counters of one switch and its groups. If it does not answer, return the reason."""
    counters = pb.SwitchCounters(plane=switch.plane.name, name=switch.name)
    try:
        await _fill(counters, switch, groups)
    except SwitchUnavailable as unavailable:
        return pb.SwitchCounters(plane=switch.plane.name, name=switch.name, problem=str(unavailable))
    return counters


async def _fill(counters: pb.SwitchCounters, switch: ManagedSwitch, groups: Iterable[Group]) -> None:
    counters.packets.update(await _packets(switch.link, "members"))
    counters.slots = switch.slots.slots
    counters.slots_used = sum(taken.size for taken in switch.slots.taken.values())
    for group in groups:
        for tree in group.trees:
            if tree.placed and tree.placed.group in switch.groups:
                number = tree.placed.group
                counters.groups.add(
                    job=group.job,
                    rail=tree.rail,
                    tree=tree.index,
                    group=number,
                    slots=tree.slots,
                    packets=await switch.outcomes(number),
                )


async def _packets(link: SwitchLink, senders: str) -> Counter[str]:
    """Read packets by action of `decide`, of the table `senders`, and by the reason of earlier drops."""
    packets: Counter[str] = Counter()
    for entry, count in await link.packets("decide"):
        if isinstance(entry.action, fy.P4TableAction):
            packets[entry.action.name] += count
    packets[senders] = sum(count for _, count in await link.packets(senders))
    for name in filter(link.has, (*DROPS, FORGED_SOURCES)):
        packets[name] = sum((await link.counter(name)).values())
    return packets
