# SPDX-License-Identifier: Apache-2.0
"""All states that the slot algorithm can reach: the switch model, and any order of its hosts' packets.

There is one slot with its two copies, because slots are independent. Its serial numbers wrap. Each packet
ever sent may arrive at any time, any number of times, or never. This covers loss, duplication, reordering and
delay without bound. The search checks at every step:

- Each sum that leaves a switch contains each contribution exactly once.
- A switch drops a contribution as late only if its sender has the result. Otherwise the sender would wait
  forever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pytest
from protocol.switch_model import CONTRIBUTE, PARENT, RESULT, SUM, Membership, Output, Packet, SwitchModel

GROUP, CHUNKS = 7, 6
START = 2**32 - 1  # the second round of the slot has serial number 0
REGISTERS = ("tag", "seen", "present", "values")


@dataclass(frozen=True)
class State:
    """Registers of the switches, and the chunks of all packets ever sent on each link, as bits."""

    registers: tuple[tuple[bytes, ...], ...]
    results: tuple[int, ...]  # of each host
    up: tuple[int, ...]  # from each host, and the last one from the leaf
    down: tuple[int, ...]


def changed(values: tuple[int, ...], at: int, value: int) -> tuple[int, ...]:
    return (*values[:at], value, *values[at + 1 :])


class Search:
    """Hosts at a root, or with `leaf` all but the last host at a leaf below the root."""

    def __init__(self, switch: type[SwitchModel], hosts: int, leaf: bool) -> None:
        self.hosts = hosts
        self.leaf = leaf
        self.at_leaf = hosts - 1 if leaf else 0
        self.switches = [switch(1, [Membership(GROUP, 2 if leaf else hosts, 1, START)], registers=2)]
        if leaf:
            member = Membership(GROUP, self.at_leaf, 1, START, child_at_parent=0)
            self.switches.append(switch(1, [member], registers=2))
        for model in self.switches:  # an earlier group has left its contents
            model.seen[:], model.present[:], model.values[:] = 2 ** model.groups[GROUP].children - 1, True, 7
        links = (0,) * (hosts + leaf)
        self.first = State(tuple(map(self._registers, self.switches)), (0,) * hosts, links, links)

    @staticmethod
    def _registers(model: SwitchModel) -> tuple[bytes, ...]:
        return tuple(getattr(model, name).tobytes() for name in REGISTERS)

    def run(self) -> int:
        """Visit all states, and return their number. Raise AssertionError if one is wrong."""
        seen, todo, ended = {self.first}, [self.first], False
        while todo:
            state = todo.pop()
            ended |= set(state.results) == {CHUNKS}
            new = set(self.following(state)) - seen
            seen |= new
            todo += new
        assert ended, "no run has ended"
        return len(seen)

    def following(self, state: State) -> Iterator[State]:
        for host, chunk in enumerate(state.results):
            if chunk < CHUNKS:  # the host sends, or its result arrives
                yield replace(state, up=changed(state.up, host, state.up[host] | 1 << chunk))
            if state.down[host] >> chunk & 1:
                yield replace(state, results=changed(state.results, host, chunk + 1))
        for link in range(self.hosts + self.leaf):
            for chunk in range(CHUNKS):
                if state.up[link] >> chunk & 1:
                    yield self.contribute(state, link, chunk)
        for chunk in range(CHUNKS) if self.leaf else ():
            if state.down[self.hosts] >> chunk & 1:
                yield self.arrive(
                    state, 1, PARENT, Packet(RESULT, SUM, **self.at(0, chunk, range(self.hosts)))
                )

    def at(self, child: int, chunk: int, hosts: range) -> dict[str, object]:
        """Return the fields of a packet with the sum of these hosts' contributions to a chunk."""
        value = sum((1 << 4 * host) * (chunk + 1) for host in hosts)  # no two sums are equal
        fields = {
            "group": GROUP,
            "child": child,
            "flags": 0,
            "slot": chunk % 2,
            "round": chunk // 2,
            "mark": 0,
        }
        return fields | {"lanes": value.to_bytes(4)}

    def contribute(self, state: State, link: int, chunk: int) -> State:
        """Let a contribution to a chunk arrive."""
        senders = range(self.at_leaf) if link == self.hosts else range(link, link + 1)
        switch = int(link < self.at_leaf)
        child = link if switch or not self.leaf else int(link < self.hosts)
        stale = self.switches[switch].stale
        after = self.arrive(state, switch, child, Packet(CONTRIBUTE, SUM, **self.at(child, chunk, senders)))
        if self.switches[switch].stale > stale:
            assert all(state.results[host] > chunk for host in senders), (
                "a contribution that is needed is late"
            )
        return after

    def arrive(self, state: State, switch: int, port: int | str, packet: Packet) -> State:
        """Let a packet arrive at a switch, and put the packets that leave on their links."""
        model = self.switches[switch]
        for name, content in zip(REGISTERS, state.registers[switch], strict=True):
            register = getattr(model, name)
            register[...] = np.frombuffer(content, register.dtype).reshape(register.shape)
        up, down, whole = list(state.up), list(state.down), range(self.hosts)
        for out, data in model.process(port, packet.encode()):
            sent = Packet.parse(data)
            assert sent is not None
            chunk = sent.round * 2 + sent.slot
            parts = range(self.at_leaf) if out == PARENT else whole
            assert sent.lanes == self.at(0, chunk, parts)["lanes"], "a wrong sum has left a switch"
            if out == PARENT:
                up[self.hosts] |= 1 << chunk
            else:
                to = int(out) if switch or not self.leaf else (self.hosts if out == 0 else self.hosts - 1)
                down[to] |= 1 << chunk
        registers = list(state.registers)
        registers[switch] = self._registers(model)
        return State(tuple(registers), state.results, tuple(up), tuple(down))


@pytest.mark.parametrize(("hosts", "leaf"), [(2, False), (4, False), (5, True)])
def test_no_order_of_packets_breaks_a_sum(
    hosts: int, leaf: bool, record_property: Callable[[str, object], None]
) -> None:
    states = Search(SwitchModel, hosts, leaf).run()
    record_property("summary", f"slots: {hosts} hosts, {1 + leaf} levels: all {states} states are right")


# --- mutants of the switch: each lacks one rule ---


class NoTagCheck(SwitchModel):
    """The switch treats late packets of an earlier round as packets of the current round."""

    def _contribute(self, packet: Packet, member: Membership, index: int, age: int) -> list[Output]:
        return super()._contribute(packet, member, index, max(age, 0))


class UnsignedSerials(SwitchModel):
    """The switch compares serial numbers without the wrap."""

    def _contribute(self, packet: Packet, member: Membership, index: int, age: int) -> list[Output]:
        tag = (member.start + packet.round) % 2**32
        return super()._contribute(packet, member, index, tag - int(self.tag[index]))


class OneCopy(SwitchModel):
    """Ranks reuse a slot while others may still miss its last result."""

    def process(self, port: int | str, data: bytes) -> list[Output]:
        packet = Packet.parse(data)
        assert packet is not None
        once = replace(packet, slot=0, round=packet.round * 2 + packet.slot)
        return [(out, self._undo(each)) for out, each in super().process(port, once.encode())]

    @staticmethod
    def _undo(data: bytes) -> bytes:
        packet = Packet.parse(data)
        assert packet is not None
        return replace(packet, slot=packet.round & 1, round=packet.round >> 1).encode()


class NoResultPresent(SwitchModel):
    """A leaf forgets that its slot holds the result, and sends the result up as its children's sum."""

    def _from_parent(self, packet: Packet, member: Membership, index: int, age: int) -> list[Output]:
        outputs = super()._from_parent(packet, member, index, age)
        self.present[index] = False
        return outputs


class ResultWithoutTag(SwitchModel):
    """A leaf takes a late result for that of its slot's round."""

    def _from_parent(self, packet: Packet, member: Membership, index: int, age: int) -> list[Output]:
        return super()._from_parent(packet, member, index, 0)


class NoSeen(SwitchModel):
    """The switch adds a retransmission once more."""

    def _contribute(self, packet: Packet, member: Membership, index: int, age: int) -> list[Output]:
        if age == 0 and self.seen[index] & np.uint32(1 << packet.child):
            self.values[index] += self._contributed(packet)
        return super()._contribute(packet, member, index, age)


@pytest.mark.parametrize(
    ("mutant", "leaf"),
    [
        *(
            (mutant, leaf)
            for mutant in (NoTagCheck, UnsignedSerials, OneCopy, NoSeen)
            for leaf in (False, True)
        ),
        *((mutant, True) for mutant in (NoResultPresent, ResultWithoutTag)),
    ],
)
def test_mutants_are_refuted(mutant: type[SwitchModel], leaf: bool) -> None:
    with pytest.raises(AssertionError):
        Search(mutant, 2 + leaf, leaf).run()
