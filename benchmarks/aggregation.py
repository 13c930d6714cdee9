# SPDX-License-Identifier: Apache-2.0
"""One group of workers on one switch, and the contributions that they send."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

import finsy as fy

from railweave._native import ina
from railweave.controller import desired, tables, wire
from railweave.controller.slots import SlotRange
from railweave.controller.state import SwitchState, difference
from railweave.p4src.artifacts import JUMBO_MTU, Artifact, artifact, mtu_for
from railweave.p4src.config import CONFIG
from railweave.topologies.model import DEFAULT_MTU, Nic, Topology
from railweave.topologies.planes import planes

GROUP = 1
SLOTS = 512  # of the group; a window is no larger
VIRTUAL_IP = "10.1.255.1"
UDP_PORT = CONFIG["INA_UDP_PORT"]
FIRST_WORKER_PORT = 40_000  # where worker 0 receives


@dataclass(frozen=True)
class Scenario:
    """A program, and hosts on unshaped links to one switch that runs it."""

    lanes: int = 256
    workers: int = 2

    @property
    def size(self) -> dict[str, int]:
        """Return the parameters of a measurement."""
        return {"lanes": self.lanes, "hosts": self.workers}

    @property
    def program(self) -> Artifact:
        """Return the compiled aggregation program. ValueError for a number of lanes without a program."""
        return artifact(self.lanes)

    @property
    def files(self) -> tuple[Path, Path]:
        """Return the P4Info and the JSON of the program."""
        return self.program.p4info_path, self.program.json_path

    @property
    def topology(self) -> Topology:
        """Return one plane. TopologyError for more workers than a switch has children."""
        made = planes(self.workers, ["ina"], 0)
        return made.with_mtu(JUMBO_MTU) if mtu_for(self.lanes) > DEFAULT_MTU else made

    @property
    def nics(self) -> tuple[Nic, ...]:
        """Return each worker's interface."""
        return self.topology.planes[0].nics

    def updates(self) -> list[fy.P4TableEntry | fy.P4MulticastGroupEntry]:
        """Return the entries, in order, that make the workers a group with this switch as its root."""
        me = tables.Endpoint(tables.virtual_mac(tables.ip_number(VIRTUAL_IP)), tables.ip_number(VIRTUAL_IP))
        guard = desired.source_guard(self.topology.planes[0], self.nics[0].switch)
        entries = {*guard.entries, tables.virtual_addresses(me.ip)}
        for worker, nic in enumerate(self.nics):
            host = tables.Endpoint(
                tables.mac_number(nic.mac), tables.ip_number(nic.address), FIRST_WORKER_PORT + worker
            )
            slots = SlotRange(base=0, size=SLOTS, start=1)
            entries.add(tables.members(GROUP, nic.port, worker, host.ip, slots, self.workers, is_root=True))
            entries.add(tables.replicas(GROUP, worker, me, host))
        wanted = SwitchState(frozenset(entries), tables.multicasts(GROUP, self._ports(), uplink=None))
        return [wire.encode(update) for update in difference(SwitchState(), wanted)]

    def _ports(self) -> dict[int, int]:
        return {worker: nic.port for worker, nic in enumerate(self.nics)}

    def contribution(self, worker: int, slot: int, round_: int) -> bytes:
        """Return a CONTRIBUTE frame; `slot` counts copies."""
        nic, lanes = self.nics[worker], range(slot, slot + self.lanes)
        body = ina.Header(group=GROUP, child=worker, slot=slot, round=round_, mark=0xCAFE).encode()
        body += struct.pack(f">{self.lanes}i", *lanes)
        mac, ports = tables.virtual_mac(tables.ip_number(VIRTUAL_IP)), (FIRST_WORKER_PORT + worker, UDP_PORT)
        return udp_frame((mac, tables.mac_number(nic.mac)), nic.address, VIRTUAL_IP, ports, body)


def udp_frame(
    macs: tuple[int, int], source: str, destination: str, ports: tuple[int, int], body: bytes, ttl: int = 64
) -> bytes:
    """Return a UDP packet. `macs` are those of destination and source, `ports` of source and destination."""
    udp = struct.pack(">HHHH", *ports, 8 + len(body), 0)
    addresses = tables.ip_number(source), tables.ip_number(destination)
    header = struct.pack(">BBHHHBBHII", 0x45, 0, 28 + len(body), 0, 0, ttl, 17, 0, *addresses)
    header = header[:10] + checksum(header).to_bytes(2, "big") + header[12:]
    return b"".join(mac.to_bytes(6, "big") for mac in macs) + b"\x08\x00" + header + udp + body


def checksum(header: bytes) -> int:
    """Return the Internet checksum of an even number of bytes (RFC 1071)."""
    total: int = sum(struct.unpack(f">{len(header) // 2}H", header))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return 0xFFFF ^ total
