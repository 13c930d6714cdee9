# SPDX-License-Identifier: Apache-2.0
"""Seeded schedules of allreduces of RDMA WRITEs that the switch sums: every bit compared, none may hang.

    cd tests && python -m protocol.sum_schedules --seeds 0:10000

The rail uses the compiled program in the embedded engine. The native rail consists of its algorithm, its ring
and its queue pairs. All time is virtual. There is one switch, or a root with leaves. Links lose up to 10 % of
the packets, duplicate and reorder. Ranks begin late. Each rank halts its rail at a different time, and makes
new calls while packets of the old ones are under way. Queue pairs fail. A switch loses its state, a rank
dies, or ranks make different calls.
"""

from __future__ import annotations

import itertools
import random
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from dataplane.ring import HIDDEN_QP, Ring, RingMember
from protocol.calls import Call
from protocol.composed_schedules import DTYPES, OPS, draw_inputs, sum_of, wrong
from protocol.ring_schedules import LANES, MAX_HOSTS, MTU, SHAPES, SLOT_RANGE, epochs, loaded_fabric
from protocol.seeds import main
from protocol.virtual_time import HangError

from railweave._native import roce, sum_rings

LEAST_BYTES = 4096  # the switch adds larger slices
MOST_PACKETS = 200_000  # a run with more packets hangs


class Network:
    """The embedded switches with the ring's entries. For the simulation they are one switch.

    Packets between the switches are lost and duplicated like other packets. Later packets overtake some.
    """

    def __init__(
        self, shape: int, links: random.Random, ranks: int, first_psns: Sequence[int], slots: int
    ) -> None:
        self.forgets: int | None = None  # a switch loses its state at this packet, not in the last era
        self.last = 0  # the last incarnation
        self.loss = self.duplicate = self.overtaken = 0.0  # between switches
        self.fabric = loaded_fabric(shape)
        self.random = links
        self._waiting: list[tuple[int | None, int, bytes]] = []
        self.complaints: set[str] = set()
        self._window = slots // 2
        self._sent: dict[tuple[int, int], bytes] = {}  # payloads by rank and number of the packet
        self._left: set[tuple[int, int]] = set()  # sums that have left, by their receivers, and numbers
        members = tuple(
            RingMember(
                ip=0x0A030001 + rank,
                mac=0x020000030001 + rank,
                port=rank + 1,
                number=rank,
                qp=sum_rings.into_number(rank),
                first_psn=first_psns[rank],
                udp_port=0xC000 + rank,
            )
            for rank in range(ranks)
        )
        assert sum_rings.ALIAS == HIDDEN_QP
        self.members = members
        root = self.fabric.switches[None]
        self.tree = self.fabric.tree(
            Ring(root, members, slot_base=0, slots=slots, header_base=0, epoch=next(epochs))
        )
        self.packets = 0

    def register(self) -> None:
        """Install the ring's entries in every switch."""
        for place in self.tree.states:
            self.tree.register(self.fabric.switches[place], place)

    def unregister(self) -> None:
        """Remove the ring's entries from every switch."""
        for place in self.tree.states:
            self.tree.unregister(self.fabric.switches[place], place)

    def exchange(self, rank: int, transport: bytes, incarnation: int, first: int) -> list[tuple[int, bytes]]:
        """Carry a packet to the next rank, or carry an acknowledgement to the previous rank."""
        members = self.members
        packet = roce.parse(transport)
        assert packet
        forward = packet["opcode"] != roce.Opcode.ACKNOWLEDGE
        m, to = members[rank], members[(rank + (1 if forward else -1)) % len(members)]
        path = roce.Path(m.mac.to_bytes(6), to.mac.to_bytes(6), m.ip, to.ip, m.udp_port)
        if forward:
            self._check(rank, self._number(packet, rank), bytes(packet["payload"]), first)
        self.packets += 1
        if self.packets > MOST_PACKETS:
            raise HangError(f"{self.packets} packets")
        if self.packets == self.forgets and incarnation < self.last:
            self.fabric.forget(self.random.choice(list(self.fabric.switches)))
        waiting, self._waiting = self._waiting, []
        made: list[tuple[int, bytes]] = []
        self._arrive(self.fabric.at[m.port], m.port, roce.seal(path, self.packets & 0xFFFF, transport), made)
        for each in waiting:
            self._arrive(*each, made)
        return made

    def _number(self, packet: dict[str, Any], sender: int) -> int:
        return (packet["psn"] - self.members[sender].first_psn) % 2**24

    def _check(self, rank: int, number: int, payload: bytes, first: int) -> None:
        """Check that a resent packet is the same, and that a slot's next packet follows its last sum."""
        if self._sent.setdefault((rank, number), payload) != payload:
            self.complaints.add("a packet has changed")
        before = number - self._window
        if before >= first and (rank, before) not in self._left:
            self.complaints.add("a packet is ahead of its window")

    def _arrive(self, place: int | None, port: int, frame: bytes, made: list[tuple[int, bytes]]) -> None:
        """Carry a frame through the switches. Append packets for hosts to `made`."""
        for out, data in self.fabric.switches[place].exchange(port, frame):
            if there := self.fabric.next(place, out):
                draw = self.random.random
                for _ in range(2 if draw() < self.duplicate else 1):
                    if draw() < self.loss:
                        continue
                    if draw() < self.overtaken:
                        self._waiting.append((*there, data))
                    else:
                        self._arrive(*there, data, made)
                continue
            fault, _, _, inner = roce.open_frames(data)[0]
            assert fault is roce.FrameFault.NONE
            if self.random.random() < self.loss:
                continue
            made.append((out - 1, inner))
            packet = roce.parse(inner)
            assert packet
            if packet["opcode"] != roce.Opcode.ACKNOWLEDGE:
                self._left.add((out - 1, self._number(packet, out - 2)))


class Schedule:
    """One run."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.counts: Counter[str] = Counter()
        choice = self.random.choice
        self.size = self.random.randint(2, MAX_HOSTS)
        eras = choice((1, 1, 2, 3))
        self.calls = [[self.draw_call() for _ in range(self.random.randint(1, 3))] for _ in range(eras)]
        self.first_psns = [
            choice((0, self.random.randrange(2**24), 2**24 - self.random.randint(1, 100)))
            for _ in range(self.size)
        ]
        self.window = choice((4, 8, 16, SLOT_RANGE // 2))
        fate = self.random.random()
        self.dies = self.random.randrange(self.size) if fate < 0.1 else -1
        self.differs = self.random.randrange(self.size) if fate >= 0.9 and eras == 1 else -1
        ends = eras > 1 and self.random.random() < 0.5
        self.options: dict[str, Any] = {
            "loss": choice((0.0, 0.0, 0.01, 0.1)),
            "duplicate": choice((0.0, 0.05)),
            "overtaken": choice((0.0, 0.02, 0.2)),
            "late_s": choice((1e-4, 1e-3, 5e-3, 3e-2)),
            "in_flight": min(choice((4, 16, 64)), self.window),
            "dies": self.dies,
            "ends": ends,
            "impatient": self.random.random() < 0.3,
        }
        self.shape = self.random.randrange(len(SHAPES))
        self.forgets = self.random.randint(1, 300) if eras > 1 and self.random.random() < 0.3 else None
        self.counts += Counter(
            halt=eras - 1,
            death=self.dies >= 0,
            mismatch=self.differs >= 0,
            loss=self.options["loss"] > 0,
            outage=self.forgets is not None,
            end=ends,
            levels=self.shape > 0,
        )

    def draw_call(self, least: int = 1) -> Call:
        """Draw one call."""
        dtype = self.random.choice(list(DTYPES))
        op = self.random.choice(list(OPS))
        count = self.random.choice((5, 1025, 2049, 4 * LANES * 16, self.random.randint(1025, 5000)))
        if op in ("sum", "avg") and dtype != np.int32:  # the hosts' own sums round differently
            count = max(count, LEAST_BYTES // dtype.itemsize + 1)
        inputs = draw_inputs(self.numbers, dtype, max(count, least), self.size)
        return Call(inputs, op=op, in_place=self.random.random() < 0.5)

    def run(self) -> None:
        """Run to the end. Raise AssertionError for a wrong bit or a hang."""
        given = [[[sum_of(call, rank) for call in era] for rank in range(self.size)] for era in self.calls]
        if self.differs >= 0:
            other = self.draw_call(least=6000)  # longer than any
            given[-1][self.differs][0] = sum_of(other, self.differs)
        network = Network(self.shape, self.random, self.size, self.first_psns, 2 * self.window)
        network.forgets, network.last = self.forgets, len(self.calls) - 1
        for name in ("loss", "duplicate", "overtaken"):
            setattr(network, name, self.options[name])
        network.register()
        try:
            outcomes, summed, complaints = sum_rings.simulate(
                *(given, network.exchange),
                seed=self.random.getrandbits(32),
                first_psns=self.first_psns,
                path_mtu=MTU,
                window_packets=self.window,
                **self.options,
            )
        finally:
            network.unregister()
        complaints |= network.complaints
        assert not complaints, complaints
        self.counts["summed"] += summed  # slices for the switch to add
        self._check(outcomes)

    def _check(self, outcomes: list[tuple[list[int], str | None]]) -> None:
        calls = list(itertools.chain(*self.calls))
        last = len(calls) - len(self.calls[-1])
        for rank, (done, failure) in enumerate(outcomes):
            assert done == sorted(set(done)), f"rank {rank} reported {done}"
            if self.differs >= 0:
                assert failure, f"rank {rank} does not know that another one calls something else"
                assert last not in done, f"rank {rank} completed what others do not call"
            for number in done:
                count = wrong(calls[number], rank, LANES)
                assert not count, f"rank {rank}, call {number}: {count} elements are wrong"
            complete = all(number in done for number in range(last, len(calls)))
            may_fail = self.dies >= 0 or self.differs >= 0
            assert failure is None or may_fail, f"rank {rank}: {failure}"
            assert complete or failure, f"rank {rank} hangs: done {done} of {len(calls)} calls"


if __name__ == "__main__":
    sys.exit(main(Schedule, __doc__))
