# SPDX-License-Identifier: Apache-2.0
"""Comparison of the program with the switch model of the protocol tests, packet by packet.

The input has random contributions, retransmissions, results, owners, shards and other rounds. Some headers
have a changed bit.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from dataplane.packets import (
    CONTRIBUTE,
    LAST,
    MAX,
    NONFINITE,
    OVERFLOW,
    OWNER,
    PARENT,
    PROBE,
    RESULT,
    RETRANSMISSION,
    SPREAD,
    SUM,
    VIRTUAL,
    Chunk,
    Group,
    Member,
    Switch,
    children,
    frame,
)
from protocol.switch_model import PARENT as MODEL_PARENT
from protocol.switch_model import Membership, SwitchModel

PACKETS = 400
HEADER_BYTES = (*range(8), *range(12, 16))  # not the round: a round far ahead makes later packets stale
ENDS = (-(2**31), -(2**31) + 1, -1, 0, 1, 2**31 - 2, 2**31 - 1)


def traffic(
    group: Group, model: SwitchModel, rng: random.Random, bare_part: float
) -> Iterator[tuple[Member, bytes]]:
    """Yield random senders and packets, mostly for the current round of four slots.

    A slot enters its next round after the current round is complete, and rarely before. The parent answers
    only complete slots, because it has no result without this switch's part.
    """
    everybody = (1 << len(group.members)) - 1
    rounds = dict.fromkeys(range(4), 0)
    for _ in range(PACKETS):
        slot = rng.choice(list(rounds))
        complete = model.seen[group.slot_base + slot] == everybody
        rounds[slot] += rng.random() < (0.3 if complete else 0.02)
        from_parent = complete and not group.root and rng.random() < 0.3
        sender = PARENT if from_parent else rng.choice(group.members)
        bare = rng.random() < bare_part
        chunk = Chunk(
            kind=rng.choices((SPREAD, PROBE, RESULT if from_parent else CONTRIBUTE), (2, 1, 17))[0],
            op=rng.choice((SUM, MAX)),
            group=group.number,
            child=sender.child,
            flags=rng.choice((0, 0, 0, RETRANSMISSION, NONFINITE, OVERFLOW, LAST))
            | (OWNER if bare else rng.choice((0, 0, OWNER))),
            slot=slot,
            round=(rounds[slot] + rng.choice((*[0] * 10, -1))) % 2**32,
            mark=rng.choice((7, 7, 7, 7, 8)),
            lanes=tuple(
                rng.choice((*ENDS, rng.randrange(ENDS[0], ENDS[-1])))
                for _ in range(0 if bare else model.lanes)
            ),
        )
        data = bytearray(chunk.pack())
        if chunk.kind in (CONTRIBUTE, SPREAD) and rng.random() < 0.1:
            data[rng.choice(HEADER_BYTES)] ^= 1 << rng.randrange(8)
        yield sender, bytes(data)


@pytest.mark.parametrize("root", [True, False], ids=["root", "leaf"])
@pytest.mark.parametrize("seed", range(3))
def test_program_and_model_agree_packet_by_packet(switch: Switch, grows: bool, root: bool, seed: int) -> None:
    group = Group(switch, children(3), root=root).install()
    # The parent's results carry the child index that this switch has at the parent.
    membership = Membership(
        group.number,
        len(group.members),
        group.slots,
        group.start,
        group.slot_base,
        None if root else PARENT.child,
    )
    model = SwitchModel(switch.lanes, [membership])
    places = {MODEL_PARENT: PARENT} | dict(enumerate(group.members))
    sent = traffic(group, model, random.Random(seed), bare_part=0.2 if grows else 0)
    for number, (sender, data) in enumerate(sent):
        expected = model.process(MODEL_PARENT if sender is PARENT else sender.child, data)
        got = group.received(switch.exchange(sender.port, frame(sender, VIRTUAL, data)))
        assert got == {places[p].port: Chunk.unpack(d) for p, d in expected}, (
            f"packet {number}: {data[:16].hex()}"
        )
    assert model.results > PACKETS / 100, "the traffic completed hardly anything"
