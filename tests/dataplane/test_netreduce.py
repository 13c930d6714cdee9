# SPDX-License-Identifier: Apache-2.0
"""Sums on RoCEv2 connections: packets in, packets out, with the headers of each connection."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from dataplane.harness import Switch
from dataplane.packets import Station, frame
from dataplane.programs import netreduce
from dataplane.ring import IMMEDIATE, PSN_MASK, RETH, WRITES, Arrival, Ring, RingMember, lanes, ring_members
from scapy.contrib.roce import BTH
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from railweave._native import roce
from railweave._native.roce import Opcode, QueuePair, QueuePairOptions

OTHERS = [opcode for opcode in Opcode if opcode not in WRITES]
MIDDLE = Opcode.WRITE_MIDDLE


@pytest.fixture(params=[256, 64], ids=lambda lanes: f"lanes{lanes}")
def switch(request: pytest.FixtureRequest, target: Switch) -> Switch:
    return target.load(netreduce(request.param))


@pytest.fixture
def ring(switch: Switch) -> Ring:
    return Ring(switch, ring_members(3)).install()


def ramp(ring: Ring, factor: int) -> bytes:
    """Return the lanes 0, factor, 2 factor, …, modulo 2^32."""
    return lanes(np.arange(ring.switch.lanes, dtype=np.int64) * factor)


def own(m: RingMember, opcode: Opcode, message_bytes: int) -> dict[str, Any]:
    """Return the fields that are specific to this member's packet."""
    fields: dict[str, Any] = {}
    if opcode in RETH:
        fields["reth"] = ((0xABCDEF0123450000 + m.number) & (2**64 - 1), 0xBEEF0000 + m.number, message_bytes)
    if opcode in IMMEDIATE:
        fields["immediate"] = 0x1000 * m.number + 7
    return fields


def contribute(
    ring: Ring, m: RingMember, index: int, factor: int, opcode: Opcode = MIDDLE, **fields: Any
) -> dict[int, Arrival]:
    return ring.send(m, ring.frame(m, index, ramp(ring, factor), opcode, **fields))


def sums(ring: Ring, index: int, factor: int, opcode: Opcode = MIDDLE) -> dict[int, Arrival]:
    return {m.number: ring.expected(m, index, opcode, ramp(ring, factor)) for m in ring.members}


def complete(ring: Ring, index: int, factor: int) -> None:
    """Let all members contribute a ramp of `factor`, and check the sum."""
    answers = [contribute(ring, m, index, factor) for m in ring.members]
    assert answers == [{}] * (len(ring.members) - 1) + [sums(ring, index, factor * len(ring.members))]


@pytest.mark.parametrize("opcode", WRITES, ids=lambda opcode: opcode.name)
def test_the_sum_leaves_on_every_connection_with_that_connections_headers(ring: Ring, opcode: Opcode) -> None:
    size = 4 * ring.switch.lanes
    answers = [
        contribute(ring, m, 0, 3**m.number, opcode, **own(m, opcode, size), ack_request=m.number == 1)
        for m in ring.members
    ]
    arrived = {
        m.number: ring.expected(
            m, 0, opcode, ramp(ring, 13), **own(m, opcode, size), ack_request=m.number == 1
        )
        for m in ring.members
    }
    assert answers == [{}, {}, arrived]
    assert ring.switch.action_packets("decide") == {
        **dict.fromkeys(ring.switch.action_packets("decide"), 0),
        "absorb": 2,
        "result": 1,
    }
    assert all(ring.switch.direct_counter("connections", ring.key(m)) == 1 for m in ring.members)


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_the_order_of_arrival_does_not_matter(ring: Ring, order: tuple[int, ...]) -> None:
    answers = [contribute(ring, ring.members[i], 1, 7**i) for i in order]
    assert answers == [{}, {}, sums(ring, 1, 57)]


def test_integers_wrap(ring: Ring) -> None:
    corners = [0, 1, 2, 2**31 - 1, 2**31, 2**32 - 1]
    triples = list(itertools.product(corners, repeat=3))
    for index, first in enumerate(range(0, len(triples), ring.switch.lanes)):
        part = (triples[first:] + [(0, 0, 0)] * ring.switch.lanes)[: ring.switch.lanes]
        columns = np.array(part, np.uint64).T
        answers = [ring.send(m, ring.frame(m, index, lanes(columns[m.number]), MIDDLE)) for m in ring.members]
        assert {arrival.payload for arrival in answers[2].values()} == {lanes(columns.sum(axis=0))}


def test_scapy_computes_the_same_icrc(ring: Ring) -> None:
    for m in ring.members:
        frames = ring.switch.exchange(m.port, ring.frame(m, 0, ramp(ring, 5), MIDDLE))
    assert len(frames) == 3
    for _, data in frames:
        decoded = Ether(data)
        received, decoded[BTH].icrc = decoded[BTH].icrc, None
        assert Ether(bytes(decoded))[BTH].icrc == received


def test_psns_wrap_and_need_not_start_alike(ring: Ring) -> None:
    """Each member's 24-bit PSN wraps at another index. The index itself wraps at the end."""
    for first in (0, 2**22, 2**23, 3 * 2**22, 2**24 - ring.slots, 2**24):
        for index in range(first, first + ring.slots):
            complete(ring, index, 1 + index % 5)


def test_a_repeated_packet_counts_once(ring: Ring) -> None:
    a, b, c = ring.members
    contribute(ring, a, 0, 1)
    assert contribute(ring, a, 0, 1) == {}
    contribute(ring, b, 0, 1)
    assert contribute(ring, a, 0, 1) == {}
    assert contribute(ring, c, 0, 1) == sums(ring, 0, 3)
    assert ring.switch.action_packets("decide")["duplicate"] == 2


def test_a_wish_for_an_acknowledgement_that_comes_with_a_repetition_is_kept(ring: Ring) -> None:
    a, b, c = ring.members
    contribute(ring, a, 0, 1)
    contribute(ring, a, 0, 1, ack_request=True)
    contribute(ring, b, 0, 1)
    arrived = contribute(ring, c, 0, 1)
    assert {number: arrival.ack_request for number, arrival in arrived.items()} == {
        0: True,
        1: False,
        2: False,
    }


def test_a_wish_for_an_acknowledgement_ends_with_its_packet(ring: Ring) -> None:
    for m in ring.members:
        contribute(ring, m, 0, 1, ack_request=True)
    complete(ring, ring.slots, 1)


def test_what_may_change_on_the_way_is_no_damage(ring: Ring) -> None:
    """The ICRC excludes TOS, TTL, UDP checksum, FECN and BECN. The receivers' codec checks the ICRC."""
    for m in ring.members:
        ether = Ether(ring.frame(m, 0, ramp(ring, 1), MIDDLE))
        ether[IP].tos, ether[IP].ttl, ether[UDP].chksum, ether[IP].chksum = 3, 9, 0xBEEF, None
        ether[BTH].fecn = ether[BTH].becn = 1
        answer = ring.send(m, bytes(ether))
    assert answer == sums(ring, 0, 3)


@pytest.mark.parametrize("opcode", WRITES, ids=lambda opcode: opcode.name)
def test_a_sum_that_was_lost_is_sent_again_on_that_connection_alone(ring: Ring, opcode: Opcode) -> None:
    for m in ring.members:
        contribute(ring, m, 3, 4, opcode, **own(m, opcode, 4096))
    for m in ring.members:
        again = contribute(ring, m, 3, 4, opcode, **own(m, opcode, 4096), ack_request=True)
        expected = ring.expected(m, 3, opcode, ramp(ring, 12), **own(m, opcode, 4096), ack_request=True)
        assert again == {m.number: expected}
    assert ring.switch.action_packets("decide")["repeat"] == 3


def test_a_new_index_overwrites_the_slot(ring: Ring) -> None:
    contribute(ring, ring.members[0], 2, 1000)
    for index in (2 + ring.slots, 2 + 2 * ring.slots, 2 + 7 * ring.slots):
        complete(ring, index, index)


def test_an_older_packet_goes_on_empty(ring: Ring) -> None:
    complete(ring, 2, 9)
    complete(ring, 2 + ring.slots, 1)
    for m in ring.members:
        again = contribute(ring, m, 2, 9, Opcode.WRITE_ONLY, reth=(1, 2, 3))
        assert again == {m.number: ring.expected(m, 2, MIDDLE, b"", ack_request=True)}
        assert contribute(ring, m, 2 + ring.slots, 1).keys() == {m.number}  # the slot is unchanged
    assert ring.switch.action_packets("decide")["acknowledge"] == 3


@pytest.mark.parametrize("had_it", [True, False])
def test_a_receiver_acknowledges_an_empty_packet_only_if_it_had_the_sum(ring: Ring, had_it: bool) -> None:
    complete(ring, ring.slots, 1)
    m = ring.members[0]
    memory = roce.MemoryRegions()
    psn = (m.first_psn + had_it) & PSN_MASK
    options = QueuePairOptions(m.qp, 0x999, 0, psn, path_mtu=4 * ring.switch.lanes)
    receiver = QueuePair(options, memory)
    [(_, data)] = ring.switch.exchange(m.port, ring.frame(m, 0, ramp(ring, 1), MIDDLE))
    receiver.receive(roce.open_frames(data)[0][3], 0)
    answer = roce.parse(receiver.transmit(0) or b"")
    assert answer
    assert answer["aeth"][0] == (0 if had_it else 3)
    assert receiver.failed is not had_it


@pytest.mark.parametrize(
    ("ahead", "outcome"), [(2**23 - 8, "absorb"), (2**23, "acknowledge"), (2**24 - 8, "acknowledge")]
)
def test_newer_means_less_than_half_the_circle_ahead(ring: Ring, ahead: int, outcome: str) -> None:
    contribute(ring, ring.members[0], 0, 1)
    before = ring.switch.action_packets("decide")[outcome]
    contribute(ring, ring.members[1], ahead, 1)
    assert ring.switch.action_packets("decide")[outcome] == before + 1


def test_slots_are_apart(ring: Ring) -> None:
    for m in ring.members[:2]:
        for index in range(ring.slots):
            assert contribute(ring, m, index, index + 1) == {}
    for index in reversed(range(ring.slots)):
        assert contribute(ring, ring.members[2], index, index + 1) == sums(ring, index, 3 * (index + 1))


def test_groups_on_neighbouring_slots_do_not_meet(ring: Ring) -> None:
    second = replace(
        *(ring,),
        members=_renumbered(ring.members),
        number=2,
        slot_base=ring.slot_base + ring.slots,
        header_base=ring.header_base + 3 * ring.slots,
        mcast_group=3,
    ).register()
    both = ((ring, 1), (second, 5))
    for place in range(2):
        for r, factor in both:
            for index in (0, 7):
                assert contribute(r, r.members[place], index, factor, Opcode.WRITE_ONLY, reth=(1, 2, 3)) == {}
    for r, factor in both:
        for index in (0, 7):
            last = contribute(r, r.members[2], index, factor, Opcode.WRITE_ONLY, reth=(1, 2, 3))
            assert {arrival.payload for arrival in last.values()} == {ramp(r, 3 * factor)}
            assert last.keys() == {0, 1, 2}


def test_a_later_group_on_the_same_slots_starts_clean(ring: Ring) -> None:
    for index in (0, 5 * ring.slots):
        complete(ring, index, 9)
    contribute(ring, ring.members[0], 6 * ring.slots, 9)
    for m in ring.members:
        ring.switch.delete("connections", ring.key(m))
        ring.switch.delete("deliveries", {"group": ring.number, "member": m.number})
    later = replace(ring, number=2, epoch=2, mcast_group=3).register()
    for index in (0, 1, ring.slots):
        complete(later, index, 2)


def test_packets_of_an_earlier_group_on_the_same_slots_are_old(ring: Ring) -> None:
    later = replace(ring, number=2, epoch=5, mcast_group=3, members=_renumbered(ring.members)).register()
    complete(later, 0, 1)
    for m in ring.members:
        assert contribute(ring, m, 1000 * ring.slots, 1).keys() == {m.number}
    assert contribute(later, later.members[0], 0, 1).keys() == {0}
    assert ring.switch.action_packets("decide")["acknowledge"] == 3


def _renumbered(members: tuple[RingMember, ...]) -> tuple[RingMember, ...]:
    return tuple(replace(m, qp=m.qp + 0x1000, first_psn=m.first_psn ^ 9) for m in members)


def test_two_members_and_one(switch: Switch) -> None:
    pair = Ring(switch, ring_members(2)).install()
    complete(pair, 0, 3)
    alone = Ring(switch, (replace(ring_members(1)[0], qp=0x777),), 2, 64, mcast_group=3).register()
    assert contribute(alone, alone.members[0], 0, 3) == sums(alone, 0, 3)


# Packets that the switch does not sum.


def untouched(ring: Ring, m: RingMember, data: bytes) -> None:
    assert ring.switch.exchange(m.port, data) == [(ring.next(m).port, data)]


@pytest.mark.parametrize("opcode", OTHERS, ids=lambda opcode: opcode.name)
def test_what_is_no_write_passes_as_it_is(ring: Ring, opcode: Opcode) -> None:
    """The opcodes include ACKs, NAKs and READs. They pass in both directions of a connection."""
    m = ring.members[0]
    payload = ramp(ring, 1)
    untouched(ring, m, ring.frame(m, 0, payload, opcode))
    untouched(ring, m, ring.frame(m, 0, b"", opcode, qpn=0x4711))
    complete(ring, 0, 1)


def test_a_connection_that_is_not_registered_passes_as_it_is(ring: Ring) -> None:
    m = ring.members[0]
    payload = ramp(ring, 1)
    for opcode in WRITES:
        untouched(ring, m, ring.frame(m, 0, payload, opcode, qpn=0x4711))
    untouched(ring, m, ring.frame(m, 0, payload[:17], Opcode.WRITE_ONLY, qpn=0x4711))
    other = replace(m, ip=m.ip + 100)
    untouched(ring, m, ring.frame(other, 0, payload, MIDDLE))
    third = ring.members[2]
    elsewhere = ring.frame(m, 0, payload, MIDDLE)  # by the port of another member
    assert ring.switch.exchange(third.port, elsewhere) == [(ring.next(m).port, elsewhere)]
    complete(ring, 0, 1)


def test_congestion_notifications_and_other_datagrams_pass_as_they_are(ring: Ring) -> None:
    m, to = ring.members[0], ring.members[1]
    notification = bytes([0x81, 0, 0xFF, 0xFF, 0x40]) + m.sent_qp.to_bytes(3) + bytes(28)
    for udp in ({"dport": 4791}, {"dport": 4790}, {"dport": 4791, "len": 9}, {"sport": 4791}):
        for payload in (notification, b"", bytes([MIDDLE]), ramp(ring, 1)):
            untouched(ring, m, frame(m, to, payload, udp))
    station = Station(ip=1, mac=to.mac)
    untouched(ring, m, frame(m, station, notification, {"dport": 4791}, ttl=1, tos=3, id=77))


@pytest.mark.parametrize("size", [0, 1, 4, -4, -1, 4096])
def test_payloads_that_are_not_all_lanes_are_refused(ring: Ring, size: int) -> None:
    m = ring.members[1]
    payload = (ramp(ring, 1) * 5)[: size if size >= 0 else size + 4 * ring.switch.lanes]
    for opcode in WRITES:
        assert ring.send(m, ring.frame(m, 0, payload, opcode)) == {}
    assert ring.switch.action_packets("decide")["bad_length"] == len(WRITES)
    complete(ring, 0, 1)


def test_no_damage_gets_into_a_sum(ring: Ring) -> None:
    """Flip one bit in each header byte after the Ethernet header, and in some payload bytes."""
    a, b, c = ring.members
    contribute(ring, a, 0, 1)
    contribute(ring, c, 0, 1)
    intact = ring.frame(b, 0, ramp(ring, 1), MIDDLE)
    places = {*range(14, 60), *range(60, len(intact) - 4, 97), *range(len(intact) - 4, len(intact))}
    places -= {40, 41, 46}  # the UDP checksum and the congestion bits
    for place in sorted(places):
        damaged = bytearray(intact)
        damaged[place] ^= 1 << place % 8
        for _, data in ring.switch.exchange(b.port, bytes(damaged)):
            assert data == damaged, f"byte {place}"  # a packet of another connection
    assert ring.switch.action_packets("decide")["bad_icrc"] > len(places) // 3
    assert contribute(ring, b, 0, 1) == sums(ring, 0, 3)


def test_an_ipv4_checksum_that_is_wrong_is_refused(ring: Ring) -> None:
    m = ring.members[0]
    damaged = bytearray(ring.frame(m, 0, ramp(ring, 1), MIDDLE))
    damaged[24] ^= 4
    assert ring.switch.exchange(m.port, bytes(damaged)) == []
    assert ring.switch.action_packets("decide")["bad_icrc"] == 1


def test_packets_from_different_places_of_a_message_are_not_added(ring: Ring) -> None:
    a, b, c = ring.members
    contribute(ring, a, 0, 1, Opcode.WRITE_LAST)
    assert contribute(ring, b, 0, 1, Opcode.WRITE_MIDDLE) == {}
    assert contribute(ring, b, 0, 1, Opcode.WRITE_LAST, partition=0x7FFF) == {}
    assert contribute(ring, c, 0, 1, Opcode.WRITE_LAST) == {}
    assert contribute(ring, b, 0, 1, Opcode.WRITE_LAST) == sums(ring, 0, 3, Opcode.WRITE_LAST)
    assert ring.switch.action_packets("decide")["mismatch"] == 2


def test_bad_first_bytes_of_a_bth_are_refused(ring: Ring) -> None:
    m = ring.members[0]
    for flags in (0x01, 0x0F, 0x10, 0x30):  # another version; padding
        data = bytearray(ring.frame(m, 0, ramp(ring, 1), MIDDLE))
        data[43] |= flags
        assert ring.switch.exchange(m.port, bytes(data)) == []
    assert ring.switch.action_packets("decide")["bad_length"] == 4


@pytest.mark.parametrize("lengths", [(4, 0), (0, 4), (0, -4), (-4, -4)])
def test_lengths_that_contradict_each_other_are_refused(ring: Ring, lengths: tuple[int, int]) -> None:
    """The packets have a correct ICRC."""
    m = ring.members[0]
    ether = Ether(ring.frame(m, 0, ramp(ring, 1), MIDDLE))
    ether[IP].len += lengths[0]
    ether[UDP].len += lengths[1]
    ether[IP].chksum = ether[BTH].icrc = None
    assert ring.switch.exchange(m.port, bytes(ether)) == []
    assert ring.switch.action_packets("decide")["bad_length"] == 1


@pytest.mark.parametrize("cut", [1, 4, 5, 200])
def test_a_packet_that_ends_early_is_refused(ring: Ring, cut: int) -> None:
    m = ring.members[0]
    data = ring.frame(m, 0, ramp(ring, 1), MIDDLE)[:-cut]
    assert ring.switch.exchange(m.port, data) == []
    complete(ring, 0, 1)
