# SPDX-License-Identifier: Apache-2.0
"""Seeded schedules of allreduces of RDMA WRITEs that the switch sums: every bit compared, none may hang.

    cd tests && python -m protocol.sum_schedules --seeds 0:10000

The rail uses the compiled program in the embedded engine. The native rail consists of its algorithm, its ring
and its queue pairs. All time is virtual. There is one switch, or a root with leaves. Links lose up to 10 % of
the packets, duplicate and reorder. PSNs wrap, and an earlier ring has used the slots. Ranks begin late. Each
rank halts its rail at a different time, and makes new calls while packets of the old ones are under way.
Queue pairs fail. A switch loses its state, a rank dies, or ranks make different calls.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
from dataplane.inprocess import InProcessSwitch
from dataplane.programs import netreduce
from dataplane.ring import HIDDEN_QP, Ring, RingMember
from dataplane.ring_tree import RingTree, leaves
from protocol.calls import Call
from protocol.composed_schedules import DTYPES, OPS, check_outcomes, draw_inputs, sum_of
from protocol.seeds import main
from protocol.virtual_time import HangError

from railweave._native import roce
from railweave._rigs import sum_rings

LANES = 64
LEAST_BYTES = 4096  # the switch adds larger slices
MOST_PACKETS = 20_000  # a run with more packets hangs
MOST_SLOTS = 64
EARLIER = 1  # epoch of the ring that has used the slots before

ROOT = None
LEAVES = leaves(2, up=9, first_down=11)
SHAPES: tuple[Mapping[int, int | None], ...] = (
    dict.fromkeys(range(1, 5), ROOT),
    {1: 0, 2: 0, 3: 1, 4: 1},
    {1: 0, 2: 1, 3: ROOT, 4: 0},
)
"""Where ranks are, by their ports: at the root or at a leaf."""


def new_switch() -> InProcessSwitch:
    """Return a switch with the compiled program."""
    switch = InProcessSwitch()
    switch.load(netreduce(LANES))
    return switch


class Network:
    """The embedded switches with the ring's entries. For the simulation they are one switch.

    Packets between the switches are lost and duplicated like other packets. Later packets overtake some.
    """

    def __init__(self, schedule: Schedule, epoch: int) -> None:
        self.schedule = schedule
        self.random = schedule.random
        self.at = SHAPES[schedule.shape]
        self.packets = 0
        self.complaints: set[str] = set()
        self._waiting: list[tuple[int | None, int, bytes]] = []
        self._sent: dict[tuple[int, int], bytes] = {}  # payloads by rank and number of the packet
        self._left: set[tuple[int, int]] = set()  # sums that have left, by their receivers, and numbers
        self.members = tuple(self._member(rank) for rank in range(schedule.size))
        assert sum_rings.ALIAS == HIDDEN_QP
        slots = {"slot_base": 0, "slots": schedule.slots, "header_base": 0, "epoch": epoch}
        root = new_switch()
        ring = Ring(root, self.members, **slots)
        tree = RingTree(ring, LEAVES, {m.number: self.at[m.port] for m in self.members})
        self.switches = {place: new_switch() if place is not ROOT else root for place in tree.states}
        for place, switch in self.switches.items():
            for port in {*range(32)} - {*switch.ports}:  # ports of the links between the switches
                switch.insert("trunk_ports", {"ingress_port": port}, "trusted")
            self._use(switch)
            tree.install(switch, place)

    def _member(self, rank: int) -> RingMember:
        return RingMember(
            ip=0x0A030001 + rank,
            mac=0x020000030001 + rank,
            port=rank + 1,
            number=rank,
            qp=sum_rings.into_number(rank),
            first_psn=self.schedule.first_psns[rank],
            udp_port=0xC000 + rank,
        )

    def _use(self, switch: InProcessSwitch) -> None:
        """Leave contents of an earlier ring in a switch's registers."""
        registers = switch.control.device.pipeline.arrays  # type: ignore[attr-defined]
        registers.set_registers("slot_epoch", range(MOST_SLOTS), EARLIER)
        for slot in range(MOST_SLOTS):
            registers.set_registers("slot_index", range(slot, slot + 1), self.random.getrandbits(24))
            registers.set_registers("slot_seen", range(slot, slot + 1), self.random.getrandbits(4))

    def _forget(self) -> None:
        """Reset a switch's registers to their initial state."""
        switch = self.random.choice(list(self.switches.values()))
        registers = switch.control.device.pipeline.arrays  # type: ignore[attr-defined]
        registers.set_registers("slot_epoch", range(MOST_SLOTS), 0)

    def exchange(self, rank: int, transport: bytes, incarnation: int, first: int) -> list[tuple[int, bytes]]:
        """Carry a packet to the next rank, or carry an acknowledgement to the previous rank."""
        members, schedule = self.members, self.schedule
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
        if self.packets == schedule.forgets and incarnation < len(schedule.calls) - 1:
            self._forget()
        waiting, self._waiting = self._waiting, []
        made: list[tuple[int, bytes]] = []
        self._arrive(self.at[m.port], m.port, roce.seal(path, self.packets & 0xFFFF, transport), made)
        for each in waiting:
            self._arrive(*each, made)
        return made

    def _number(self, packet: dict[str, Any], sender: int) -> int:
        return (packet["psn"] - self.members[sender].first_psn) % 2**24

    def _check(self, rank: int, number: int, payload: bytes, first: int) -> None:
        """Check that a resent packet is the same, and that a slot's next packet follows its last sum."""
        if self._sent.setdefault((rank, number), payload) != payload:
            self.complaints.add("a packet has changed")
        before = number - self.schedule.window
        if before >= first and (rank, before) not in self._left:
            self.complaints.add("a packet is ahead of its window")

    def _arrive(self, place: int | None, port: int, frame: bytes, made: list[tuple[int, bytes]]) -> None:
        """Carry a frame through the switches. Append packets for hosts to `made`."""
        options, draw = self.schedule.options, self.random.random
        for out, data in self.switches[place].exchange(port, frame):
            if there := self._behind(place, out):
                for _ in range(2 if draw() < options["duplicate"] else 1):
                    if draw() < options["loss"]:
                        continue
                    if draw() < options["overtaken"]:
                        self._waiting.append((*there, data))
                    else:
                        self._arrive(*there, data, made)
                continue
            fault, _, _, inner = roce.open_frames(data)[0]
            assert fault is roce.FrameFault.NONE
            if draw() < options["loss"]:
                continue
            made.append((out - 1, inner))
            packet = roce.parse(inner)
            assert packet
            if packet["opcode"] != roce.Opcode.ACKNOWLEDGE:
                self._left.add((out - 1, self._number(packet, out - 2)))

    @staticmethod
    def _behind(place: int | None, port: int) -> tuple[int | None, int] | None:
        """Return the switch behind a port, and its port for this link. Return None if a host is there."""
        if place is not ROOT:
            return (ROOT, LEAVES[place].down) if port == LEAVES[place].up else None
        return next(((leaf, of.up) for leaf, of in enumerate(LEAVES) if of.down == port), None)


class Schedule:
    """One run. Mutants replace the slots for each window, and the ring's epoch."""

    def __init__(self, seed: int, windows: int = 2, epoch: int = EARLIER + 1) -> None:
        self.random = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.counts: Counter[str] = Counter()
        choice = self.random.choice
        self.size = self.random.randint(2, 4)
        eras = choice((1, 1, 2, 3))
        self.calls = [[self.draw_call() for _ in range(self.random.randint(1, 3))] for _ in range(eras)]
        self.first_psns = [
            choice((0, self.random.randrange(2**24), 2**24 - self.random.randint(1, 100)))
            for _ in range(self.size)
        ]
        self.window = choice((4, 8, 16, MOST_SLOTS // 2))
        self.slots = windows * self.window
        fate = self.random.random()
        self.dies = self.random.randrange(self.size) if fate < 0.1 else -1
        self.differs = self.random.randrange(self.size) if fate >= 0.9 and eras == 1 else -1
        self.options: dict[str, Any] = {
            "loss": choice((0.0, 0.0, 0.01, 0.1)),
            "duplicate": choice((0.0, 0.05)),
            "overtaken": choice((0.0, 0.02, 0.2)),
            "late_s": choice((1e-4, 1e-3, 5e-3, 3e-2)),
            "in_flight": min(choice((4, 16, 64)), self.window),
            "dies": self.dies,
            "ends": eras > 1 and self.random.random() < 0.5,
            "impatient": self.random.random() < 0.3,
        }
        self.shape = self.random.randrange(len(SHAPES))
        # A switch loses its state at this packet, not in the last era.
        self.forgets = self.random.randint(1, 300) if eras > 1 and self.random.random() < 0.3 else None
        self.network = Network(self, epoch)
        self.counts += Counter(
            halt=eras - 1,
            death=self.dies >= 0,
            mismatch=self.differs >= 0,
            loss=self.options["loss"] > 0,
            outage=self.forgets is not None,
            end=self.options["ends"],
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
        outcomes, summed, complaints = sum_rings.simulate(
            *(given, self.network.exchange),
            seed=self.random.getrandbits(32),
            first_psns=self.first_psns,
            path_mtu=4 * LANES,
            window_packets=self.window,
            **self.options,
        )
        complaints |= self.network.complaints
        assert not complaints, complaints
        self.counts["summed"] += summed  # slices for the switch to add
        for rank, (done, failure) in enumerate(outcomes):
            if self.differs >= 0:
                assert failure, f"rank {rank} does not know that another one calls something else"
                assert 0 not in done, f"rank {rank} completed what others do not call"
        check_outcomes(self.calls, outcomes, LANES, may_fail=self.dies >= 0 or self.differs >= 0)


if __name__ == "__main__":
    sys.exit(main(Schedule, __doc__))
