# SPDX-License-Identifier: Apache-2.0
"""One of every entity of the program `entities`, and short ways to write them."""

from __future__ import annotations

import finsy
from finsy import (
    P4ActionProfileGroup,
    P4ActionProfileMember,
    P4CloneSessionEntry,
    P4CounterEntry,
    P4DigestEntry,
    P4IndirectAction,
    P4Member,
    P4MeterConfig,
    P4MeterEntry,
    P4MulticastGroupEntry,
    P4RegisterEntry,
    P4TableAction,
    P4TableEntry,
    P4TableMatch,
    P4ValueSetEntry,
)
from finsy.p4entity import P4ValueSetMember
from p4runtime_clients import ENTITIES, A, B, Client, codes, update

RATES = P4MeterConfig(cir=10, cburst=20, pir=30, pburst=40)


def port(number: int) -> P4TableAction:
    return P4TableAction("to_port", port=number)


def host(number: int, **fields: object) -> P4TableEntry:
    match = P4TableMatch(destination=A)
    return P4TableEntry("hosts", match=match, action=P4TableAction("host_port", port=number), **fields)  # type: ignore[arg-type]


def spread(action: object) -> P4TableEntry:
    return P4TableEntry("spread", match=P4TableMatch(destination=(A, 24)), action=action)  # type: ignore[arg-type]


def policy(action: P4TableAction, **match: object) -> P4TableEntry:
    return P4TableEntry("policy", match=P4TableMatch(marked=0, **match), action=action, priority=7)


def frame(source: int = B, kind: int = 0x1234) -> bytes:
    return A.to_bytes(6, "big") + source.to_bytes(6, "big") + kind.to_bytes(2, "big") + bytes(50)


MEMBERS = [P4ActionProfileMember("next_hops", member_id=number, action=port(number)) for number in (1, 2, 3)]
GROUP = P4ActionProfileGroup(
    "next_hops", group_id=1, max_size=9, members=[P4Member(1, weight=2), P4Member(2, weight=(3, 4))]
)
WRITTEN: list[finsy.P4Entity] = [
    *MEMBERS,
    GROUP,
    P4ActionProfileMember("classes", member_id=4, action=P4TableAction("classify", **{"class": 9})),
    host(3, idle_timeout_ns=60 * 10**9, metadata=b"mine"),
    spread(P4IndirectAction(group_id=1)),
    P4TableEntry("classified", match=P4TableMatch(type=5), action=P4IndirectAction(member_id=4)),
    policy(port(2), type=(0x800, 0xFF00), **{"class": (3, 9)}),
    policy(P4TableAction("drop"), ingress=300),
    P4MulticastGroupEntry(4, replicas=[(1, 1), (2, 2)]),
    P4CloneSessionEntry(5, replicas=[3], class_of_service=2, packet_length_bytes=64),
    P4DigestEntry("learned_t", max_list_size=3, max_timeout_ns=10, ack_timeout_ns=20),
]
MODIFIED: list[finsy.P4Entity] = [
    P4MeterEntry("rates", index=2, config=RATES),
    P4RegisterEntry("sizes", index=7, data=0x01020304),
    P4CounterEntry("arrivals", index=1, data=finsy.P4CounterData(packet_count=5)),
    P4ValueSetEntry("marked_types", members=[P4ValueSetMember(0x88B5), P4ValueSetMember(1)]),
]
EVERYTHING: list[finsy.P4Entity] = [
    P4ActionProfileMember(),
    P4ActionProfileGroup(),
    P4TableEntry(),
    P4MulticastGroupEntry(),
    P4CloneSessionEntry(),
    P4DigestEntry(),
]


async def write(one: Client, *updates: tuple[str, finsy.P4Entity], **fields: object) -> list[str]:
    """Codes of the updates; empty if all were done."""
    return codes(await one.write(*(update(kind, entity, ENTITIES) for kind, entity in updates), **fields))
