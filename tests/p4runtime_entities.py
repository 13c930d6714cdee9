# SPDX-License-Identifier: Apache-2.0
"""One entity of each kind of the program `entities`, and helpers that write entities."""

from __future__ import annotations

import finsy as fy
from finsy.p4entity import P4ValueSetMember
from p4runtime_clients import ENTITIES, A, B, Client, codes, update

RATES = fy.P4MeterConfig(cir=10, cburst=20, pir=30, pburst=40)


def port(number: int) -> fy.P4TableAction:
    return fy.P4TableAction("to_port", port=number)


def host(number: int, **fields: object) -> fy.P4TableEntry:
    match = fy.P4TableMatch(destination=A)
    return fy.P4TableEntry("hosts", match=match, action=fy.P4TableAction("host_port", port=number), **fields)  # type: ignore[arg-type]


def spread(action: object) -> fy.P4TableEntry:
    return fy.P4TableEntry("spread", match=fy.P4TableMatch(destination=(A, 24)), action=action)  # type: ignore[arg-type]


def policy(action: fy.P4TableAction, **match: object) -> fy.P4TableEntry:
    return fy.P4TableEntry("policy", match=fy.P4TableMatch(marked=0, **match), action=action, priority=7)


def frame(source: int = B, kind: int = 0x1234) -> bytes:
    return A.to_bytes(6, "big") + source.to_bytes(6, "big") + kind.to_bytes(2, "big") + bytes(50)


MEMBERS = [
    fy.P4ActionProfileMember("next_hops", member_id=number, action=port(number)) for number in (1, 2, 3)
]
GROUP = fy.P4ActionProfileGroup(
    "next_hops", group_id=1, max_size=9, members=[fy.P4Member(1, weight=2), fy.P4Member(2, weight=(3, 4))]
)
WRITTEN: list[fy.P4Entity] = [
    *MEMBERS,
    GROUP,
    fy.P4ActionProfileMember("classes", member_id=4, action=fy.P4TableAction("classify", **{"class": 9})),
    host(3, idle_timeout_ns=60 * 10**9, metadata=b"mine"),
    spread(fy.P4IndirectAction(group_id=1)),
    fy.P4TableEntry("classified", match=fy.P4TableMatch(type=5), action=fy.P4IndirectAction(member_id=4)),
    policy(port(2), type=(0x800, 0xFF00), **{"class": (3, 9)}),
    policy(fy.P4TableAction("drop"), ingress=300),
    fy.P4MulticastGroupEntry(4, replicas=[(1, 1), (2, 2)]),
    fy.P4CloneSessionEntry(5, replicas=[3], packet_length_bytes=64),
    fy.P4DigestEntry("learned_t", max_list_size=3, max_timeout_ns=10, ack_timeout_ns=20),
]
MODIFIED: list[fy.P4Entity] = [
    fy.P4MeterEntry("rates", index=2, config=RATES),
    fy.P4RegisterEntry("sizes", index=7, data=0x01020304),
    fy.P4CounterEntry("arrivals", index=1, data=fy.P4CounterData(packet_count=5)),
    fy.P4ValueSetEntry("marked_types", members=[P4ValueSetMember(0x88B5), P4ValueSetMember(1)]),
]
EVERYTHING: list[fy.P4Entity] = [
    fy.P4ActionProfileMember(),
    fy.P4ActionProfileGroup(),
    fy.P4TableEntry(),
    fy.P4MulticastGroupEntry(),
    fy.P4CloneSessionEntry(),
    fy.P4DigestEntry(),
]


async def write(one: Client, *updates: tuple[str, fy.P4Entity], **fields: object) -> list[str]:
    """Write updates. Return their status codes, or an empty list on success."""
    return codes(await one.write(*(update(kind, entity, ENTITIES) for kind, entity in updates), **fields))
