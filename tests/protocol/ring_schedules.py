# SPDX-License-Identifier: Apache-2.0
"""Seeded schedules of rings of RoCEv2 connections whose WRITEs the switch sums; every sum is checked.

    cd tests && python -m protocol.ring_schedules --seeds 0:10000

Native queue pairs and the compiled program run in virtual time. The program runs in the embedded engine.
One or two rings of two to four hosts use one switch, or a root and its leaves. Links lose, duplicate and
reorder packets. Hosts are late, PSNs wrap, and rings use slots of earlier rings. Sometimes a switch loses
its entries and registers. Then a connection may give up, but no result may be wrong.
"""

from __future__ import annotations

import itertools
import json
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from dataplane.harness import Program
from dataplane.inprocess import InProcessSwitch
from dataplane.programs import netreduce
from dataplane.ring import Ring, RingMember
from dataplane.ring_tree import RingTree, leaves
from numpy.typing import NDArray
from protocol.seeds import main
from protocol.virtual_time import MICROSECOND, MILLISECOND, SECOND, Link, Process, World

from railweave._native import roce
from railweave._native.roce import Completion, CompletionKind, Operation, QueuePair, QueuePairOptions, Status

LANES = 64
MTU = 4 * LANES
BOUND = 300 * SECOND
SLOT_RANGE = 64  # the most slot numbers of a ring
MAX_HOSTS = 4

epochs = itertools.count(1)
"""Of the rings that follow one another on the slots of a switch."""

Words = NDArray[np.int64]
Mutation = Callable[[dict[str, Any]], None]


ROOT = None
LEAVES = leaves(2, up=9, first_down=11)
SHAPES: tuple[Mapping[int, int | None], ...] = (
    dict.fromkeys(range(1, MAX_HOSTS + 1), ROOT),
    {1: 0, 2: 0, 3: 1, 4: 1},
    {1: 0, 2: 1, 3: ROOT, 4: 0},
)
"""Where hosts stand, by their ports: at the root or at a leaf."""


class Fabric:
    """The switches of a shape, and the links between them."""

    def __init__(self, shape: int, mutation: Mutation | None) -> None:
        self.at = SHAPES[shape]
        used = {leaf for leaf in self.at.values() if leaf is not ROOT}
        self.switches = {place: _loaded(mutation) for place in (ROOT, *sorted(used))}
        everyone = tuple(_member(n) for n in self.at)
        for place, switch in self.switches.items():
            self.tree(Ring(switch, everyone)).bridge(switch, place)

    def tree(self, ring: Ring) -> RingTree:
        """Return a ring's parts in the switches."""
        return RingTree(ring, LEAVES, {m.number: self.at[m.port] for m in ring.members})

    def next(self, place: int | None, port: int) -> tuple[int | None, int] | None:
        """Return the switch behind a port, and its port for this link. Return None if a host is there."""
        if place is not ROOT:
            return (ROOT, LEAVES[place].down) if port == LEAVES[place].up else None
        return next(((leaf, of.up) for leaf, of in enumerate(LEAVES) if of.down == port), None)

    def forget(self, place: int | None) -> None:
        """Reset a switch's registers to their initial state."""
        arrays = self.switches[place].control.device.pipeline.arrays  # type: ignore[attr-defined]
        arrays.set_registers("slot_epoch", range(2 * SLOT_RANGE), 0)


@lru_cache(maxsize=len(SHAPES))
def loaded_fabric(shape: int, mutation: Mutation | None = None) -> Fabric:
    """Return switches with the program, mutated if a mutation is given. They serve many schedules."""
    return Fabric(shape, mutation)


def _loaded(mutation: Mutation | None) -> InProcessSwitch:
    switch = InProcessSwitch()
    load_mutant(switch, netreduce(LANES), mutation)
    for port in {*range(32)} - {*switch.ports}:  # ports of the links between the switches
        switch.insert("trunk_ports", {"ingress_port": port}, "trusted")
    return switch


def load_mutant(switch: InProcessSwitch, program: Program, mutation: Mutation | None) -> None:
    """Load a program, after a mutation of its JSON if there is one."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as mutant:
        if mutation:
            changed = json.loads(program.json.read_text())
            mutation(changed)
            json.dump(changed, mutant)
            mutant.flush()
            program = replace(program, json=Path(mutant.name))
        switch.load(program)


def _member(n: int, qp: int = 0, first_psn: int = 0, udp_port: int = 0) -> RingMember:
    """Return host n as member n - 1 of a ring. Its switch port is n."""
    return RingMember(0x0A030000 + n, 0x020000030000 + n, n, n - 1, qp, first_psn, udp_port)


@dataclass(frozen=True)
class Message:
    """WRITEs of the same size on all connections. The last WRITE has immediate data."""

    packets: tuple[int, ...]  # of each WRITE

    @property
    def size(self) -> int:
        return sum(self.packets) * MTU


class End(Process):
    """A queue pair of a host, with its path and its completions."""

    def __init__(
        self, job: Job, qp: QueuePair, port: int, path: roce.Path, memory: roce.MemoryRegions
    ) -> None:
        super().__init__(job.schedule.network, qp)
        self.job = job
        self.qp = qp
        self.port = port
        self.path = path
        self.memory = memory
        self.results = 0  # messages that have arrived
        self.writes = 0  # WRITEs that are acknowledged
        self.ip_id = 0

    def deadline(self) -> int | None:
        return self.qp.deadline

    def transmit(self, packet: bytes) -> None:
        self.ip_id = (self.ip_id + 1) & 0xFFFF
        self.job.schedule.from_host(self.port, roce.seal(self.path, self.ip_id, packet))

    def event(self, done: Completion) -> None:
        self.job.completed(self, done)


@dataclass
class Host:
    """A member of a ring. `out` sends to the next member, `into` receives from the previous one."""

    member: RingMember
    out: End
    into: End
    values: list[Words]
    inbox: NDArray[np.uint8]
    posted: int = 0
    writes_posted: int = 0
    buffers: list[NDArray[np.uint8]] = field(default_factory=list)


class Schedule:
    """One seed's rings, links and faults."""

    window_factor = 1  # mutants widen it: messages ahead of the last result, in windows

    def __init__(self, seed: int, mutation: Mutation | None = None) -> None:
        self.random = draw = random.Random(seed)
        self.fabric = loaded_fabric(draw.randrange(len(SHAPES)), mutation)
        self.hosts = draw.randint(2, MAX_HOSTS)
        # Each copy of a NAK makes the sender resend everything, so a path of more links duplicates less.
        fewer = 2 if len(self.fabric.switches) > 1 else 1
        link = Link(
            delay=10 * MICROSECOND,
            loss=draw.choice((0, 0.01, 0.05, 0.2)),
            duplicate=draw.choice((0, 0.02, 0.2)) / fewer,
            reorder=draw.choice((0, 0.02, 0.3)),
            late=draw.choice((100 * MICROSECOND, 20 * MILLISECOND)),
        )
        self.network = World(draw.getrandbits(32), link)
        self.outage = draw.random() < 0.1
        self.counts: Counter[str] = Counter()
        self.rings = [self._ring(number) for number in range(draw.randint(1, 2))]

    # --- setting up ---

    def _ring(self, number: int) -> Job:
        draw = self.random
        members = tuple(
            _member(
                n,
                qp=0x100 * (number + 1) + n,
                first_psn=draw.choice((0, draw.randrange(2**24), 2**24 - draw.randint(1, 40))),
                udp_port=0xC000 + 16 * number + n,
            )
            for n in range(1, self.hosts + 1)
        )
        window = draw.randint(1, 3)
        longest = draw.choice((1, 2, 5, 10))
        slots = self.slots_for(window, longest)
        ring = Ring(
            self.fabric.switches[ROOT],
            members,
            number + 1,
            slot_base=number * SLOT_RANGE,
            slots=slots,
            header_base=number * SLOT_RANGE * (MAX_HOSTS + 1),
            epoch=next(epochs),
            mcast_group=number + 2,
        )
        return Job(self, ring, window, [self._message(longest) for _ in range(draw.randint(1, 12))])

    @staticmethod
    def slots_for(window: int, longest: int) -> int:
        """Return the slots of two windows of messages, rounded up to a power of two."""
        return 1 << (2 * window * longest - 1).bit_length()

    def _message(self, longest: int) -> Message:
        packets = self.random.randint(1, longest)
        first = self.random.randrange(packets)
        return Message((first, packets - first) if first else (packets,))

    # --- the network ---

    def from_host(self, port: int, frame: bytes) -> None:
        self.network.send(("up", port), frame, partial(self.to_switch, self.fabric.at[port], port))

    def to_switch(self, place: int | None, port: int, frame: bytes) -> None:
        self.counts["packets"] += 1
        for out, data in self.fabric.switches[place].exchange(port, frame):
            if there := self.fabric.next(place, out):
                self.network.send((place, out), data, partial(self.to_switch, *there))
            else:
                self.network.send(("down", out), data, partial(self.to_host, out))

    def to_host(self, port: int, frame: bytes) -> None:
        fault, _, _, transport = roce.open_frames(frame)[0]
        assert fault is roce.FrameFault.NONE
        qpn = int.from_bytes(transport[5:8], "big")
        end = self.ends.get((port, qpn))
        if end is not None:  # some packets have the number of no queue pair
            end.arrive(transport)

    # --- running ---

    def run(self) -> None:
        self.ends = {key: end for job in self.rings for key, end in job.ends.items()}
        for job in self.rings:
            for place in self.fabric.switches:
                job.register(place)
        if self.outage:
            self.network.at(self.random.randrange(3 * MILLISECOND), self._lose_state)
        try:
            self.network.run(self._settled, BOUND)
        finally:
            for job in self.rings:
                for place in self.fabric.switches:
                    job.unregister(place)

    def _settled(self) -> bool:
        if self.counts["gave_up"]:
            assert self.outage, "a connection has given up"
            return True
        return all(job.done() for job in self.rings)

    def _lose_state(self) -> None:
        """Delete a switch's slots and entries, and restore the entries a little later."""
        place = self.random.choice(list(self.fabric.switches))
        for job in self.rings:
            job.unregister(place)
        self.fabric.forget(place)
        for job in self.rings:
            again = self.network.now + self.random.randrange(30 * MILLISECOND)
            self.network.at(again, partial(job.register, place))


class Job:
    """A running ring. Member i WRITEs message k to member i + 1 after it has received result k - window."""

    def __init__(self, schedule: Schedule, ring: Ring, window: int, messages: list[Message]) -> None:
        self.schedule = schedule
        self.ring = ring
        self.window = window
        self.messages = messages
        self.registered: dict[int | None, RingTree] = {}
        self.ends: dict[tuple[int, int], End] = {}
        draw = schedule.random
        # Both directions share a pair of queue pairs. The pair's numbers cannot be hidden, as ACKs use them.
        self.shared = len(ring.members) == 2 and not schedule.outage and draw.random() < 0.3
        if self.shared:
            self.ring = ring = _shared(ring)
        late = draw.choice((0, MILLISECOND, 300 * MILLISECOND))
        self.ready = [[draw.randrange(late + 1) for _ in messages] for _ in ring.members]
        generator = np.random.default_rng(draw.randrange(2**32))
        sizes = [message.size // 4 for message in messages]
        numbers = [[generator.integers(-(2**31), 2**31, n) for n in sizes] for _ in ring.members]
        self.sums = [sum(each).astype(np.int32) for each in zip(*numbers, strict=True)]  # type: ignore[union-attr]
        self.hosts = self._hosts(numbers)
        for host in self.hosts:
            for ready in self.ready[host.member.number]:
                schedule.network.at(ready, partial(self.post_some, host))

    def _hosts(self, numbers: list[list[Words]]) -> list[Host]:
        members = self.ring.members
        joined = [self._connect(m) for m in members]
        hosts = []
        for m in members:
            into = joined[m.number - 1][1]
            inbox = np.zeros(sum(message.size for message in self.messages), np.uint8)
            hosts.append(Host(m, joined[m.number][0], into, numbers[m.number], inbox))
            for k in range(len(self.messages)):
                into.qp.post_receive(k, np.zeros(1, np.uint8))
        self.rkeys = [host.into.memory.add(host.inbox, roce.REMOTE_WRITE) for host in hosts]
        return hosts

    def _connect(self, m: RingMember) -> tuple[End, End]:
        """Return the sender's end and the receiver's end of a member's connection."""
        to = self.ring.next(m)
        if self.shared:
            own = self.ring.members[m.number - 1].qp  # the destination of the other member's WRITEs
            return self._end(m, to, own, m.qp, m.first_psn, to.first_psn), self._end(
                to, m, m.qp, own, to.first_psn, m.first_psn
            )
        own = 0x4000 | m.qp
        return self._end(m, to, own, m.sent_qp, m.first_psn, 77), self._end(to, m, m.qp, own, 77, m.first_psn)

    def _end(self, m: RingMember, to: RingMember, qpn: int, peer: int, psn: int, peer_psn: int) -> End:
        if (m.port, qpn) in self.ends:
            return self.ends[m.port, qpn]
        draw, memory = self.schedule.random, roce.MemoryRegions()
        window = draw.choice((1, 4, 64))
        options = QueuePairOptions(
            *(qpn, peer, psn, peer_psn),
            path_mtu=MTU,
            window=window,
            min_window=min(window, draw.choice((1, 8))),
            retries=30 if self.schedule.outage else 100_000,
        )
        path = roce.Path(m.mac.to_bytes(6), to.mac.to_bytes(6), m.ip, to.ip, m.udp_port)
        end = End(self, QueuePair(options, memory), m.port, path, memory)
        self.ends[m.port, qpn] = end
        return end

    def register(self, place: int | None) -> None:
        """Install the ring's entries in a switch, if the switch has a part in the ring."""
        fabric = self.schedule.fabric
        tree = fabric.tree(self.ring)
        if place in tree.states:
            self.registered[place] = tree.register(fabric.switches[place], place)

    def unregister(self, place: int | None) -> None:
        """Remove the ring's entries from a switch, if it has them."""
        if tree := self.registered.pop(place, None):
            tree.unregister(self.schedule.fabric.switches[place], place)

    def completed(self, end: End, done: Completion) -> None:
        if done.status is not Status.SUCCESS:
            self.schedule.counts["gave_up"] += 1
        elif done.kind is CompletionKind.RECEIVE_WRITE:
            self._arrived(end, done.immediate or 0)
        else:
            end.writes += 1

    def post_some(self, host: Host) -> None:
        while self._may_post(host):
            self._post(host)
        host.out.pump()

    def _arrived(self, end: End, immediate: int) -> None:
        [host] = [host for host in self.hosts if host.into is end]
        k = end.results
        before = (host.member.number - 1) % len(self.hosts)
        assert immediate == before << 16 | k
        start = sum(message.size for message in self.messages[:k])
        arrived = host.inbox[start : start + self.messages[k].size].view(">i4")
        assert (arrived == self.sums[k]).all(), f"host {host.member.number} has a wrong sum {k}"
        end.results += 1
        self.post_some(host)

    def _may_post(self, host: Host) -> bool:
        k = host.posted
        ahead = self.window * self.schedule.window_factor
        return (
            k < len(self.messages)
            and k < host.into.results + ahead
            and self.schedule.network.now >= self.ready[host.member.number][k]
        )

    def _post(self, host: Host) -> None:
        k, number = host.posted, host.member.number
        to = (number + 1) % len(self.hosts)
        data = host.values[k].astype(">i4").view(np.uint8)
        host.buffers.append(data)
        target = int(self.hosts[to].inbox.ctypes.data) + sum(m.size for m in self.messages[:k])
        offset = 0
        for packets in self.messages[k].packets:
            size = packets * MTU
            last = offset + size == len(data)
            host.out.qp.post(
                *(host.writes_posted, Operation.WRITE, data[offset : offset + size]),
                immediate=number << 16 | k if last else None,
                remote_address=target + offset,
                rkey=self.rkeys[to],
            )
            host.writes_posted += 1
            offset += size
        host.posted += 1

    def done(self) -> bool:
        return all(
            host.into.results == len(self.messages) == host.posted and host.out.writes == host.writes_posted
            for host in self.hosts
        )


def _shared(ring: Ring) -> Ring:
    return replace(ring, members=tuple(SharedMember(**vars(m)) for m in ring.members))


class SharedMember(RingMember):
    """A member whose connection's number is not hidden."""

    @property
    def sent_qp(self) -> int:
        return self.qp


if __name__ == "__main__":
    sys.exit(main(Schedule, __doc__))
