# SPDX-License-Identifier: Apache-2.0
"""Comparison of the program with the switch model of the protocol tests, packet by packet.

Two groups use the same switch. The input has random contributions, retransmissions, results, probes, owners,
shards and other rounds. Some headers have a changed bit, and rounds soon run over the top.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest
from dataplane import packets
from dataplane.harness import Switch
from dataplane.packets import CONTRIBUTE, OWNER, PARENT, PROBE, RESULT, SPREAD, Chunk, Group, Member
from dataplane.programs import PLACES, aggregation, place_name
from protocol.switch_model import PARENT as MODEL_PARENT
from protocol.switch_model import Membership, SwitchModel

from railweave.p4src.artifacts import JUMBO_LANES

PACKETS = 500
HEADER_BYTES = (*range(8), *range(12, 16))  # not the round: a round far ahead makes later packets stale
ENDS = (-(2**31), -(2**31) + 1, -1, 0, 1, 2**31 - 2, 2**31 - 1)
KINDS = (SPREAD, PROBE, CONTRIBUTE, RESULT)
FLAGS = (packets.RETRANSMISSION, packets.NONFINITE, packets.OVERFLOW, packets.LAST)
HALF = 2**31  # of the circle of rounds
WIDE = [("inprocess", aggregation(lanes)) for lanes in (32, 256, JUMBO_LANES)]
CASES = [
    *((place, count) for place in PLACES for count in (1, 2, 3)),
    *((place, 3) for place in (*WIDE, ("embedded", aggregation(64)))),
]


def groups_of(switch: Switch, count: int, root: bool) -> tuple[Group, Group]:
    """Set up a group of `count` hosts, and a second group of the hosts from port 2 on."""
    first = Group(switch, packets.children(count), root=root).install()
    others = tuple(replace(m, child=n) for n, m in enumerate(packets.children(3)[1:]))
    slots = first.slot_base + 2 * first.slots
    second = replace(first, members=others, number=2, slot_base=slots, start=77)
    return first, second.install(first)


def membership(group: Group) -> Membership:
    ports = tuple(m.port for m in group.members)
    parent = None if group.root else PARENT.child
    return Membership(group.number, len(ports), group.slots, group.start, group.slot_base, parent, ports)


def payload(rng: random.Random, kind: int, lanes: int, bare: bool) -> bytes:
    if kind in (PROBE, SPREAD):
        return rng.randbytes(rng.choice((0, 1, 2, 3, 100, 4 * lanes)))
    values = [rng.choice((*ENDS, rng.randrange(-HALF, HALF))) for _ in range(0 if bare else lanes)]
    return Chunk(lanes=tuple(values)).pack()[packets.HEADER.size :]


def traffic(
    groups: tuple[Group, Group], model: SwitchModel, rng: random.Random, bare_part: float
) -> Iterator[tuple[Group, Member, bytes]]:
    """Yield groups, senders and packets, mostly for the current rounds of all slots.

    A slot enters a later round after the current round is complete, and rarely before. The parent answers
    only complete slots, because it has no result without this switch's part.
    """
    rounds = {(group, slot): 0 for group in groups for slot in range(2 * group.slots)}
    group, slot = groups[0], 0
    for _ in range(PACKETS):
        if rng.random() < 0.1:
            group, slot = rng.choice(list(rounds))
        complete = model.seen[group.slot_base + slot] == (1 << len(group.members)) - 1
        if rng.random() < (0.2 if complete else 0.02):
            rounds[group, slot] += rng.choice((1, 1, HALF - 1)) if complete else 1
        from_parent = complete and not group.root and rng.random() < 0.3
        sender = PARENT if from_parent else rng.choice(group.members)
        bare = rng.random() < bare_part
        kind = rng.choices(KINDS, (2, 2, 2, 12) if from_parent else (2, 2, 16, 1))[0]
        flags = rng.choice((0, 0, *FLAGS)) | (packets.OWNER if bare else rng.choice((0, 0, OWNER)))
        data = bytearray(
            Chunk(
                kind=kind,
                op=rng.choice((packets.SUM, packets.MAX)),
                group=group.number,
                child=sender.child,
                flags=flags | (packets.TO_ROOT * (kind == PROBE and rng.random() < 0.6)),
                slot=slot if kind != PROBE or rng.random() < 0.5 else rng.choice((0x7FF, slot << 5 | 1)),
                round=(rounds[group, slot] + rng.choice((*[0] * 14, -1, HALF))) % 2**32,
                mark=rng.choice((7, 7, 7, 7, 8)),
            ).pack()
            + payload(rng, kind, model.lanes, bare)
        )
        if kind != RESULT and rng.random() < 0.1:
            data[rng.choice(HEADER_BYTES)] ^= 1 << rng.randrange(8)
        yield group, sender, bytes(data)


@pytest.mark.parametrize("root", [True, False], ids=["root", "leaf"])
@pytest.mark.parametrize(
    ("switch", "count"), CASES, indirect=["switch"], ids=[f"{place_name(place)}-{n}" for place, n in CASES]
)
def test_program_and_model_agree_packet_by_packet(
    switch: Switch, grows: bool, root: bool, count: int
) -> None:
    groups = groups_of(switch, count, root)
    model = SwitchModel(switch.lanes, map(membership, groups))
    rng = random.Random(count)
    for number, (group, sender, data) in enumerate(traffic(groups, model, rng, 0.2 if grows else 0)):
        expected = model.process(MODEL_PARENT if sender is PARENT else sender.port, data)
        framed = packets.datagram(sender, packets.HERE, data)
        out = switch.exchange(sender.port, framed.ljust(60, b"\xaa"))  # Ethernet's padding is no payload
        ports = {PARENT.port if place == MODEL_PARENT else place: left for place, left in expected}
        assert group.opened(out) == ports, f"packet {number}: {data[:16].hex()}"
    decided = switch.action_packets("decide")
    refused = sum(n for name, n in decided.items() if name.startswith("bad_") or name == "refused")
    again = decided["duplicate"] + decided["reflect"] + decided["forward_up_again"]
    results = decided["result"] + decided["mismatch"] + decided["deliver_down"]
    assert (refused, again, results) == (model.refused, model.retransmissions, model.results)
    assert decided["stale"] + decided["late_result"] == model.stale
    assert min(again, model.results, model.stale, decided["spread"], decided["probe"]) > 0
