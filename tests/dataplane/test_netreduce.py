# SPDX-License-Identifier: Apache-2.0
"""Sums on RoCEv2 connections, at one switch and in trees. The tests compare all bits of the output."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
import pytest
from dataplane.harness import Switch
from dataplane.packets import Station, frame
from dataplane.programs import everywhere, netreduce, place_name
from dataplane.ring import PSN_MASK, WRITES, Ring, RingMember, lanes, ring_members
from dataplane.ring_model import HALF, WORLDS, RingModel, World, arrives, lap
from scapy.contrib.roce import BTH
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from railweave._native.roce import Opcode
from railweave._rigs import roce
from railweave._rigs.roce import QueuePair, QueuePairOptions

MIDDLE = Opcode.WRITE_MIDDLE


pytestmark = pytest.mark.parametrize(
    "switch",
    everywhere(netreduce),
    indirect=True,
    ids=place_name,
)


def decided(switch: Switch) -> dict[str, int]:
    return {name: count for name, count in switch.action_packets("decide").items() if count}


@pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS)
def test_program_and_model_agree_packet_by_packet(switch: Switch, world: World) -> None:
    """Two rings have neighbouring slots. Later a third ring takes the slots of the first one.

    Indices and the 24-bit PSNs run over the top at different times.
    """
    rng = random.Random(len(world.senders))
    model = RingModel(world, switch.lanes)
    first = Ring(switch, ring_members(len(world.at)))
    members = tuple(replace(m, qp=m.qp + 0x1000, first_psn=m.first_psn ^ 9) for m in first.members)
    apart = {"slot_base": 40, "header_base": 128}
    beside = replace(first, members=members, number=2, epoch=7, **apart)
    later = replace(first, number=3, epoch=2, members=tuple(replace(m, qp=m.qp + 77) for m in members))
    world.tree(first).install(switch, world.place)
    for ring in (beside, later):
        switch.install(world.tree(ring).states[world.place])
    bases = (0, 8, HALF, 2**24 - 16, 2**24 - 8, 0)
    expected: Counter[str] = Counter()
    for ring in (first, later, first):
        for base in bases:
            packets = [
                *lap(world, rng, ring, base, switch.lanes),
                *lap(world, rng, beside, base, switch.lanes),
            ]
            rng.shuffle(packets)
            for number, packet in enumerate(packets):
                action, leaving = model.process(packet)
                expected[action] += 1
                out = switch.exchange(*arrives(world, packet))
                assert sorted(out) == sorted(leaving), f"packet {number}: {action} of {packet}"
    assert decided(switch) == expected
    assert switch.action_packets("connections") == {"contributor": expected.total()}


@dataclass(frozen=True)
class Alone:
    """A ring of three members at one switch."""

    ring: Ring
    switch: Switch

    @property
    def members(self) -> tuple[RingMember, ...]:
        return self.ring.members

    def payload(self, factor: int = 1) -> bytes:
        return lanes(np.arange(self.switch.lanes, dtype=np.int64) * factor)

    def frame(self, number: int = 0, opcode: Opcode = MIDDLE, index: int = 0) -> bytes:
        return self.ring.frame(self.members[number], index, self.payload(), opcode, reth=(1, 2, 3))

    def complete(self, index: int = 0) -> None:
        """Let all members contribute, and check that nothing else is in the sum."""
        outs = [self.switch.exchange(m.port, self.frame(m.number, index=index)) for m in self.members]
        assert [len(out) for out in outs] == [0, 0, 3]
        assert {arrival.payload for arrival in self.ring.received(outs[-1]).values()} == {self.payload(3)}


@pytest.fixture
def alone(switch: Switch) -> Alone:
    ring = Ring(switch, ring_members(3))
    WORLDS["three members"].tree(ring).install(switch, None)
    return Alone(ring, switch)


def test_what_may_change_on_the_way_is_no_damage(alone: Alone) -> None:
    """The ICRC excludes TOS, TTL, UDP checksum, FECN and BECN. The receivers' codec checks the ICRC."""
    for m in alone.members:
        ether = Ether(alone.frame(m.number))
        ether[IP].tos, ether[IP].ttl, ether[UDP].chksum, ether[IP].chksum = 3, 9, 0xBEEF, None
        ether[BTH].fecn = ether[BTH].becn = 1
        out = alone.switch.exchange(m.port, bytes(ether))
    assert {arrival.payload for arrival in alone.ring.received(out).values()} == {alone.payload(3)}


@pytest.mark.parametrize("had_it", [True, False])
def test_a_receiver_acknowledges_an_empty_packet_only_if_it_had_the_sum(alone: Alone, had_it: bool) -> None:
    alone.complete(alone.ring.slots)
    m = alone.members[0]
    psn = (m.first_psn + had_it) & PSN_MASK
    options = QueuePairOptions(m.qp, 0x999, 0, psn, path_mtu=4 * alone.switch.lanes)
    receiver = QueuePair(options, roce.MemoryRegions())
    [(_, data)] = alone.switch.exchange(m.port, alone.frame())
    receiver.receive(roce.open_frames(data)[0][3], 0)
    answer = roce.parse(receiver.transmit(0) or b"")
    assert answer
    assert answer["aeth"][0] == (0 if had_it else 3)
    assert receiver.failed is not had_it


def test_what_is_no_write_of_the_ring_passes_as_it_is(alone: Alone) -> None:
    """Such packets are ACKs, NAKs and READs, other connections, congestion notifications, other datagrams."""
    ring, (a, b, c) = alone.ring, alone.members
    payload = alone.payload()
    frames = [ring.frame(a, 0, payload, opcode) for opcode in Opcode if opcode not in WRITES]
    frames += [ring.frame(a, 0, b"", opcode, qpn=0x4711) for opcode in Opcode]
    frames += [ring.frame(a, 0, payload[:17], Opcode.WRITE_ONLY, qpn=0x4711)]
    frames += [ring.frame(replace(a, ip=a.ip + 100), 0, payload, MIDDLE)]
    notification = bytes([0x81, 0, 0xFF, 0xFF, 0x40]) + a.sent_qp.to_bytes(3) + bytes(28)
    for udp in ({"dport": 4791}, {"dport": 4790}, {"dport": 4791, "len": 9}, {"sport": 4791}):
        frames += [frame(a, b, each, udp) for each in (notification, b"", bytes([MIDDLE]), payload)]
    station = Station(ip=1, mac=b.mac)
    frames += [frame(a, station, notification, {"dport": 4791}, ttl=1, tos=3, id=77)]
    assert alone.switch.exchange_many([(a.port, data) for data in frames]) == [(b.port, d) for d in frames]
    by_another_port = alone.frame()
    assert alone.switch.exchange(c.port, by_another_port) == [(b.port, by_another_port)]
    assert decided(alone.switch) == {}
    alone.complete()


def with_lengths(data: bytes, ip: int, udp: int) -> bytes:
    """Return a packet whose lengths contradict each other. Its ICRC is correct."""
    ether = Ether(data)
    ether[IP].len += ip
    ether[UDP].len += udp
    ether[IP].chksum = ether[BTH].icrc = None
    return bytes(ether)


def flipped(data: bytes, place: int, bits: int) -> bytes:
    return data[:place] + bytes([data[place] ^ bits]) + data[place + 1 :]


def refused(alone: Alone) -> list[tuple[str, bytes]]:
    """Return packets that the switch drops, each with the reason."""
    ring, m, whole = alone.ring, alone.members[1], alone.frame(1)
    payload = alone.payload() * 5
    sizes = [0, 1, 4, len(payload) // 5 - 4, len(payload) // 5 - 1, 4096]
    packets = [ring.frame(m, 0, payload[:size], opcode) for size in sizes for opcode in WRITES]
    packets += [flipped(whole, 43, flags) for flags in (0x01, 0x0F, 0x10, 0x30)]  # version; padding
    packets += [with_lengths(whole, *by) for by in ((4, 0), (0, 4), (0, -4), (-4, -4))]
    packets += [whole[:-cut] for cut in (1, 4, 5, 200)]
    return [("bad_length", data) for data in packets] + [("bad_icrc", flipped(whole, 24, 4))]


def test_packets_that_are_not_whole_are_refused(alone: Alone) -> None:
    for reason, data in refused(alone):
        before = alone.switch.action_packets("decide")[reason]
        assert alone.switch.exchange(alone.members[1].port, data) == []
        assert alone.switch.action_packets("decide")[reason] == before + 1, (reason, data.hex())
    alone.complete()


def test_no_damage_gets_into_a_sum(alone: Alone) -> None:
    """Flip one bit in each header byte after the Ethernet header, and in some payload bytes."""
    a, b, c = alone.members
    intact = alone.frame(1)
    for m in (a, c):
        alone.switch.exchange(m.port, alone.frame(m.number))
    places = {*range(14, 60), *range(60, len(intact) - 4, 97), *range(len(intact) - 4, len(intact))}
    places -= {40, 41, 46}  # the UDP checksum and the congestion bits
    for place in sorted(places):
        damaged = flipped(intact, place, 1 << place % 8)
        for _, data in alone.switch.exchange(b.port, damaged):
            assert data == damaged, f"byte {place}"  # a packet of another connection
    assert alone.switch.action_packets("decide")["bad_icrc"] > len(places) // 3
    arrived = alone.ring.received(alone.switch.exchange(b.port, intact))
    assert {arrival.payload for arrival in arrived.values()} == {alone.payload(3)}


@pytest.mark.parametrize("name", ["a leaf of two", "a root of leaves"])
def test_a_switch_passes_foreign_packets_and_believes_only_its_neighbours(switch: Switch, name: str) -> None:
    world = WORLDS[name]
    ring = Ring(switch, ring_members(3))
    tree = world.tree(ring).install(switch, world.place)
    payload = lanes([1] * switch.lanes)
    for m in ring.members:  # the sum on a connection that does not end here, and any datagram
        port, to = tree.way(world.place, m), tree.way(world.place, ring.next(m))
        for data in (
            ring.frame(m, 0, payload, MIDDLE, qpn=m.qp),
            frame(m, ring.next(m), b"any", {"dport": 4791}),
        ):
            if port != to:
                assert switch.exchange(port, data) == [(to, data)]
    link, others = (tree.leaves[0].up, (1, 2)) if world.up else (tree.leaves[0].down, (2, 3))
    speaks = tree.leaves[0].frame(ring, 0, payload, MIDDLE)
    for port in others:
        assert switch.exchange(port, speaks) == []
    assert switch.exchange(link, tree.leaves[0].frame(ring, 0, payload, MIDDLE, qpn=0x7AFE77)) == []
    to_a_host = ring.members[0].mac.to_bytes(6) + speaks[6:]
    assert (
        switch.exchange(link, to_a_host)
        == [(tree.way(world.place, ring.members[0]), to_a_host)][: bool(world.up)]
    )
    assert decided(switch) == {}
