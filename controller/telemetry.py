# SPDX-License-Identifier: Apache-2.0
"""What the switches' own P4 counters say, by the names that the program gives them."""

from __future__ import annotations

from collections import Counter

import finsy as fy
from railweave.controller.errors import InvalidRequest
from railweave.controller.fabric import Fabric
from railweave.controller.managed import ManagedSwitch
from railweave.v1 import controller_pb2 as pb

DROPS = ("injected_drops_ingress", "injected_drops_egress")


async def switch_counters(fabric: Fabric, plane: str) -> pb.SwitchCountersResponse:
    """Counters of the P4 switches of a plane ('': of all); InvalidRequest if there are none."""
    switches = fabric.switches(plane)
    if not switches:
        raise InvalidRequest(
            f"plane {plane!r} has no P4 switch; planes are {[p.name for p in fabric.topology.planes]}"
        )
    counters = [
        pb.SwitchCounters(plane=s.plane.name, name=s.name, packets=await _packets(s)) for s in switches
    ]
    return pb.SwitchCountersResponse(switches=counters)


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
