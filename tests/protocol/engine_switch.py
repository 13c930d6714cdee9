# SPDX-License-Identifier: Apache-2.0
"""The compiled P4 program in the embedded engine, as a switch of the simulated network.

It holds the entries that the controller computes. It wraps datagrams into frames, and checks the addresses of
every frame that leaves.
"""

from __future__ import annotations

from collections.abc import Mapping

from dataplane.packets import HEADERS, datagram
from dataplane.programs import aggregation
from protocol.mutations import Mutation, loaded
from protocol.switch_model import PARENT, Membership, Output, Port

from railweave.controller import desired, tables
from railweave.controller.addresses import endpoint
from railweave.controller.desired import Aggregation
from railweave.controller.slots import SlotRange
from railweave.controller.state import SwitchState
from railweave.controller.tables import Endpoint
from railweave.controller.tree import Contributor, Node, Parent, Tree

PARENT_PORT = 100


def host_end(host: int) -> Endpoint:
    """Return a host's address. Its UDP port is ephemeral."""
    ip = tables.ip_number(f"10.0.{host // 250}.{host % 250 + 1}")
    return Endpoint(0x0200 << 32 | ip, ip, 40_000 + host)


def switch_end(switch: int) -> Endpoint:
    """Return a switch's own address. Its neighbours in a tree send packets to this address."""
    return endpoint(tables.ip_number(f"10.255.0.{switch + 1}"))


def group_end(group: int) -> Endpoint:
    """Return a group's address. The group's hosts send packets for their switch to this address."""
    return endpoint(tables.ip_number("10.254.0.0") + group)


def frame(source: Endpoint, target: Endpoint, payload: bytes) -> bytes:
    """Return the frame of one UDP datagram from end to end."""
    return datagram(source, target, source.udp_port, target.udp_port, payload)


def _number(port: Port) -> int:
    """Return the number of a port in the P4 program."""
    return PARENT_PORT if port == PARENT else int(port) + 1


class EngineSwitch:
    """One switch with groups and the controller's entries. `hosts` and `switches` map ports to numbers."""

    def __init__(
        self,
        lanes: int,
        number: int,
        hosts: Mapping[int, int],
        switches: Mapping[Port, int],
        mutation: Mutation | None,
    ) -> None:
        self.switch = loaded(aggregation(lanes), mutation)
        self.me = f"s{number}"
        self.hosts = {port: host_end(host) for port, host in hosts.items()}
        self.names = {port: f"s{beside}" for port, beside in switches.items()}
        self.addresses = {f"s{n}": switch_end(n) for n in (number, *switches.values())}
        self._used_slots: set[int] = set()
        self._states: dict[int, SwitchState] = {}
        for port in {_number(port) for port in (*hosts, *switches)} - {*self.switch.ports}:
            self.switch.insert("trunk_ports", {"ingress_port": port}, "trusted")
        own = tables.virtual_addresses(self.addresses[self.me].ip)
        self.switch.install(SwitchState(frozenset({own}), frozenset()))

    def add(self, member: Membership) -> None:
        """Install a group's entries. Set the tags of new slots as if earlier groups had used the slots."""
        fresh = {member.base + slot for slot in range(2 * member.slots)} - self._used_slots
        registers = self.switch.control.device.pipeline.arrays  # type: ignore[attr-defined]
        for slot in fresh:
            registers.set_registers("slot_tag", range(slot, slot + 1), (member.start - 1) & 0xFFFFFFFF)
        self._used_slots |= fresh
        group = Aggregation(member.group, "", self._tree(member), group_end(member.group).ip, self.hosts)
        slots = SlotRange(member.base // 2, member.slots, member.start)
        state = self._states[member.group] = desired.aggregation(group, self.me, slots, self.addresses)
        self.switch.install(state)

    def _tree(self, member: Membership) -> Tree:
        """Return the part of a group's tree that this switch knows. A host's rank is its port."""
        contributors = tuple(
            Contributor(child, _number(port), port if port in self.hosts else None, self.names.get(port))
            for child, port in enumerate(member.at_ports)
        )
        child = member.child_at_parent
        parent = None if child is None else Parent(self.names[PARENT], PARENT_PORT, child)
        return Tree((Node(self.me, contributors, parent),))

    def remove(self, group: int) -> None:
        """Delete a group's entries. Registers keep their contents."""
        self.switch.uninstall(self._states.pop(group))

    def _ends(self, port: Port, data: bytes) -> tuple[Endpoint, Endpoint]:
        """Return the end at a port, and this switch's address for that end.

        Hosts use their group's address, switches the switch's own.
        """
        if port in self.names:
            there, here = self.addresses[self.names[port]], self.addresses[self.me]
        else:
            there, here = self.hosts[int(port)], group_end(int.from_bytes(data[2:4], "big"))
        return there, here

    def process(self, port: Port, data: bytes) -> list[Output]:
        """Process one datagram, and return the datagrams that leave with their ports."""
        there, here = self._ends(port, data)
        outputs: list[Output] = []
        for out, packet in self.switch.exchange(_number(port), frame(there, here, data)):
            where: Port = PARENT if out == PARENT_PORT else out - 1
            payload = packet[HEADERS:]
            there, here = self._ends(where, payload)
            assert packet == frame(here, there, payload), f"a frame to {where} is addressed wrongly"
            outputs.append((where, payload))
        return outputs
