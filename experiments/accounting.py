# SPDX-License-Identifier: Apache-2.0
"""Compare three counts of the same bytes: by the agents, by the kernel and by the switches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields

from railweave._native.collectives import MOST_HOST_SUM_BYTES
from railweave._native.ina import SEAL_LANES, WIDE_LANES, exact_lanes
from railweave.experiments.messages import RailCounts
from railweave.hosts.reports import SentBytes
from railweave.topologies.lab.counters import InterfaceCounters
from railweave.topologies.model import Plane

BYTES_TOLERANCE = 0.01
MOST_HEADERS = 0.15  # largest share of frame headers that counts of super-packets lack, at an MTU of 576
MOST_OTHERS = 16  # rows of other traffic
BYTE_CLASSES = tuple(each.name for each in fields(SentBytes))
RULE = (
    "agree: the interfaces have sent the bytes that agents and other programs account for, Ethernet headers"
    f" included, within {BYTES_TOLERANCE:.0%}, and the switch has formed exactly one result per chunk. TCP "
    "handshakes may come on top. After a failure or a fault, the interfaces may have sent less, and chunks "
    "may be incomplete."
)


@dataclass(frozen=True)
class RailAccount:
    """One rail over a whole run, summed over the hosts."""

    name: str
    kind: str
    payload_bytes: int  # tensor bytes that this rail has reduced on each host
    agent_bytes: int  # sent, by the agents' counters
    sent: Mapping[str, int]  # agent_bytes by class, with the names of `railweave.hosts.reports.SentBytes`
    interface_bytes: int  # sent, by the kernel's counters
    goodput_bps: float  # tensor bits reduced per second while the rail was busy
    share: float  # of all tensor bytes
    retransmissions: int
    switch_results: int | None = None  # results that the switch has formed, by its P4 counters
    expected_results: int | None = None  # results that the switch should have formed: one per chunk
    failures: int = 0  # how often the ranks have excluded the rail
    multicast_bytes: int = 0  # tensor bytes that were sent once to all ranks
    fetched_bytes: int = 0  # multicast tensor bytes that were received again from a peer
    others: Mapping[str, int] = field(default_factory=dict)  # bytes of other traffic, by protocol and port
    handshake_bytes: int = 0  # of all TCP handshakes; agents count only those of established connections
    disturbed: bool = False  # faults were injected

    @property
    def unexplained_bytes(self) -> int:
        """Bytes sent by the interfaces that neither agents nor other programs account for."""
        return max(self._left, 0)

    @property
    def never_left_bytes(self) -> int:
        """Bytes that agents and other programs account for, but the interfaces have not sent."""
        return max(-self._left, 0)

    @property
    def _left(self) -> int:
        return self.interface_bytes - self.agent_bytes - sum(self.others.values())

    @property
    def bytes_agree(self) -> bool:
        """Whether the classes add up to the bytes that the interfaces have sent, by the rule."""
        if min(self.sent.values()) < 0 or sum(self.sent.values()) != self.agent_bytes:
            return False
        if self.never_left_bytes and (self.failures > 0 or self.disturbed):
            return True
        allowed = BYTES_TOLERANCE * max(self.agent_bytes, 1)
        return -allowed <= self._left <= allowed + self.handshake_bytes

    @property
    def results_agree(self) -> bool:
        """Whether the switch has formed one result per chunk; true for rails without a P4 switch.

        It is always true for a rail that was excluded. Some of its chunks are incomplete, and the ranks have
        probed the rail before they readmitted it.
        """
        return self.failures > 0 or self.switch_results == self.expected_results


def account(
    planes: Sequence[Plane],
    counts: Mapping[int, Mapping[str, RailCounts]],
    interfaces: Mapping[str, Mapping[str, InterfaceCounters]],
    ports: Mapping[str, Collection[int]] | None = None,
    *,
    disturbed: bool = False,
) -> list[RailAccount]:
    """Sum up the ranks' `counts` and the `interfaces` of each plane, both since the network was made.

    `ports` are the ports of the agents, by rail. Packets from and to all other ports are other traffic.
    """
    total_payload = sum(rail.payload_bytes for rails in counts.values() for rail in rails.values())
    accounts = []
    for plane in planes:
        rail = sum((rails[plane.name] for rails in counts.values() if plane.name in rails), RailCounts())
        carried = interfaces[plane.name].values()
        sent = sum(interface.bytes_sent for interface in carried)
        others = _others(carried, (ports or {}).get(plane.name, ()), sent - rail.bytes_sent)
        accounts.append(
            RailAccount(
                name=plane.name,
                kind=plane.kind,
                payload_bytes=rail.payload_bytes // max(len(counts), 1),
                agent_bytes=rail.bytes_sent,
                sent={name: getattr(rail, f"sent_{name}") for name in BYTE_CLASSES},
                interface_bytes=sent,
                goodput_bps=rail.payload_bytes * 8 / rail.busy_s if rail.busy_s else 0.0,
                share=rail.payload_bytes / total_payload if total_payload else 0.0,
                retransmissions=rail.retransmissions,
                failures=rail.failures,
                multicast_bytes=rail.multicast_bytes,
                fetched_bytes=rail.fetched_bytes,
                others=others,
                handshake_bytes=sum(interface.flows.handshake_bytes for interface in carried),
                disturbed=disturbed,
            )
        )
    return accounts


def _others(
    interfaces: Collection[InterfaceCounters], ports: Collection[int], sent_bytes: int
) -> dict[str, int]:
    """Return the bytes of flows that are not from or to these ports, largest first.

    The kernel splits super-packets into frames. The flows' counters lack the headers of these frames. The
    counts are therefore scaled up to `sent_bytes`, but by `MOST_HEADERS` at most.
    """
    counted: Counter[str] = Counter()
    for interface in interfaces:
        for flow, count in interface.flows.bytes_sent.items():
            if not set(flow.ports) & set(ports):
                counted[str(flow)] += count
    scale = min(max(sent_bytes / max(counted.total(), 1), 1.0), 1.0 + MOST_HEADERS)
    largest = [(what, round(scale * count)) for what, count in counted.most_common()]
    rest = sum(count for _, count in largest[MOST_OTHERS:])
    return dict(largest[:MOST_OTHERS]) | ({"other ports": rest} if rest else {})


def sums_of(elements: int, lanes: int) -> int:
    """Return the number of float32 packets that the switch of a netreduce rail adds.

    The packets carry data only. The hosts agree on the exponents without the switch, and sum short slices.

    >>> [sums_of(elements, 256) for elements in (1024, 1025, 256 * 257)]
    [0, 5, 257]
    """
    return -(-elements // lanes) if 4 * elements > MOST_HOST_SUM_BYTES else 0


def chunks_of(elements: int, lanes: int, hosts: int) -> int:
    """Return the number of chunks in which an ina rail sums float32.

    Some chunks carry the data. Other chunks carry one exponent for each chunk of data. A slice of up to
    `lanes` elements has no exponents. Each of its elements takes two lanes, or more lanes if one chunk holds
    all elements exactly. The count ignores an exception: very small and very large numbers need exponents.
    The seal takes some of a packet's `lanes`.

    >>> [chunks_of(elements, 256, hosts=4) for elements in (22, 127, 256, 257, 252 * 253)]
    [1, 2, 3, 3, 255]
    """
    in_packet = lanes - SEAL_LANES
    if elements * exact_lanes(hosts) <= in_packet:
        return 1
    if elements <= lanes:
        return -(-WIDE_LANES * elements // in_packet)
    data = -(-elements // in_packet)
    return data + -(-data // in_packet)


def maxima_of(elements: int, lanes: int, hosts: int) -> int:
    """Return the number of chunks of an int32 maximum on an ina rail.

    Some chunks carry the data. Other chunks carry sums that prove the maxima.

    >>> [maxima_of(elements, 256, hosts=4) for elements in (1, 252, 253, 252 * 11)]
    [2, 2, 3, 13]
    """
    data = -(-elements // (lanes - SEAL_LANES))
    return data + -(-data // (31 // hosts.bit_length()))
