# SPDX-License-Identifier: Apache-2.0
"""The switches' P4 counters, by their names in the program."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable

import finsy as fy

from railweave.controller.errors import InvalidRequest, SwitchUnavailable
from railweave.controller.fabric import Fabric
from railweave.controller.jobs import Group
from railweave.controller.managed import ManagedSwitch
from railweave.v1 import controller_pb2 as pb

DROPS = ("injected_drops_ingress", "injected_drops_egress")


async def switch_counters(fabric: Fabric, groups: Iterable[Group], plane: str) -> pb.SwitchCountersResponse:
    """Counters of the P4 switches of a plane ('': of all); InvalidRequest if there are none."""
    switches = fabric.switches(plane)
    if not switches:
        raise InvalidRequest(
            f"plane {plane!r} has no P4 switch; planes are {[p.name for p in fabric.topology.planes]}"
        )
    running = list(groups)
    counters = await asyncio.gather(*(of_switch(switch, running) for switch in switches))
    return pb.SwitchCountersResponse(switches=counters)


async def of_switch(switch: ManagedSwitch, groups: Iterable[Group]) -> pb.SwitchCounters:
    """All counters of one switch, and those of the groups on it; or why it does not answer."""
    counters = pb.SwitchCounters(plane=switch.plane.name, name=switch.name)
    try:
        await _fill(counters, switch, groups)
    except SwitchUnavailable as unavailable:
        return pb.SwitchCounters(plane=switch.plane.name, name=switch.name, problem=str(unavailable))
    return counters


async def _fill(counters: pb.SwitchCounters, switch: ManagedSwitch, groups: Iterable[Group]) -> None:
    counters.packets.update(await _packets(switch))
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


async def _packets(switch: ManagedSwitch) -> Counter[str]:
    """Packets by action name of `decide`, of all `members` together, and dropped by the injectors."""
    packets: Counter[str] = Counter()
    for entry, count in await switch.link.packets("decide"):
        if isinstance(entry.action, fy.P4TableAction):
            packets[entry.action.name] += count
    packets["members"] = sum(count for _, count in await switch.link.packets("members"))
    for name in DROPS:
        packets[name] = sum((await switch.link.counter(name)).values())
    return packets
