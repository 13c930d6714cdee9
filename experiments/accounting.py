# SPDX-License-Identifier: Apache-2.0
"""Three counts of the same bytes, compared with each other: the agents', the kernel's, the switch's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

from railweave._native.ina import WIDE_LANES, exact_lanes
from railweave._native.sum_rings import MOST_HOST_SUM_BYTES
from railweave.experiments.messages import RailCounts
from railweave.hosts.reports import SentBytes
from railweave.topologies.lab.counters import InterfaceCounters
from railweave.topologies.model import Plane

BYTES_TOLERANCE = 0.01
BYTE_CLASSES = tuple(field.name for field in fields(SentBytes))
RULE = (
    "Counts agree if the interfaces have sent as many bytes as the agents report, Ethernet headers included, "
    f"within {BYTES_TOLERANCE:.0%} (ARP and TCP handshakes are the kernel's own), and if the switch has "
    "formed exactly one result per chunk. If a rail has failed, the link may have sent fewer bytes than the "
    "agents handed it, and chunks may be incomplete."
)


@dataclass(frozen=True)
class RailAccount:
    """One rail over a whole run, summed over the hosts."""

    name: str
    kind: str
    payload_bytes: int  # of the tensors, that this rail has reduced, on each host
    agent_bytes: int  # sent, as the agents count
    sent: Mapping[str, int]  # of these, by class, as `railweave.hosts.reports.SentBytes` names them
    interface_bytes: int  # sent, as the kernel counts
    goodput_bps: float  # tensor bits reduced per second while the rail was busy
    share: float  # of all tensor bytes
    retransmissions: int
    switch_results: int | None = None  # formed by the switch, by its P4 counters
    expected_results: int | None = None  # chunks that the rail has had reduced
    failures: int = 0  # how often the ranks have excluded it
    multicast_bytes: int = 0  # of tensors, sent once to all
    fetched_bytes: int = 0  # of these, taken that a peer had to send again

    @property
    def unexplained_bytes(self) -> int:
        """Bytes sent by the interfaces that the agents do not count; negative if fewer were sent."""
        return self.interface_bytes - self.agent_bytes

    @property
    def bytes_agree(self) -> bool:
        """Whether the classes add up to what the interfaces have sent, by the rule."""
        if min(self.sent.values()) < 0 or sum(self.sent.values()) != self.agent_bytes:
            return False
        never_left = self.failures > 0 and self.unexplained_bytes < 0
        return never_left or abs(self.unexplained_bytes) <= BYTES_TOLERANCE * max(self.agent_bytes, 1)

    @property
    def results_agree(self) -> bool:
        """Whether the switch has formed one result per chunk; true for rails without a P4 switch.

        A rail that was excluded has incomplete chunks, and was probed before it was readmitted. A rail over
        which ranks have recovered parts of another one need not have formed results for them.
        """
        recovered = self.failures > 0 or self.sent["recovery"] > 0
        return recovered or self.switch_results == self.expected_results


def account(
    planes: Sequence[Plane],
    counts: Mapping[int, Mapping[str, RailCounts]],
    interfaces: Mapping[str, Mapping[str, InterfaceCounters]],
) -> list[RailAccount]:
    """Sum up the ranks' `counts` and the `interfaces` of each plane, both since the network was made."""
    total_payload = sum(rail.payload_bytes for rails in counts.values() for rail in rails.values())
    accounts = []
    for plane in planes:
        rail = sum((rails[plane.name] for rails in counts.values() if plane.name in rails), RailCounts())
        accounts.append(
            RailAccount(
                name=plane.name,
                kind=plane.kind,
                payload_bytes=rail.payload_bytes // max(len(counts), 1),
                agent_bytes=rail.bytes_sent,
                sent={name: getattr(rail, f"sent_{name}") for name in BYTE_CLASSES},
                interface_bytes=sum(interface.bytes_sent for interface in interfaces[plane.name].values()),
                goodput_bps=rail.payload_bytes * 8 / rail.busy_s if rail.busy_s else 0.0,
                share=rail.payload_bytes / total_payload if total_payload else 0.0,
                retransmissions=rail.retransmissions,
                failures=rail.failures,
                multicast_bytes=rail.multicast_bytes,
                fetched_bytes=rail.fetched_bytes,
            )
        )
    return accounts


def sums_of(elements: int, lanes: int) -> int:
    """Return the packets of float32 that the switch of a netreduce rail adds: the data.

    The hosts themselves agree on the exponents, and sum short slices.

    >>> [sums_of(elements, 256) for elements in (1024, 1025, 256 * 257)]
    [0, 5, 257]
    """
    return -(-elements // lanes) if 4 * elements > MOST_HOST_SUM_BYTES else 0


def chunks_of(elements: int, lanes: int, hosts: int) -> int:
    """Return the chunks in which an ina rail sums float32: the data, and an exponent for each of these.

    Up to `lanes` elements have no exponents, but two lanes each or, where one chunk holds them exactly, more;
    unless they are very small or large.

    >>> [chunks_of(elements, 256, hosts=4) for elements in (23, 129, 257, 256 * 257)]
    [1, 2, 3, 259]
    """
    if elements * exact_lanes(hosts) <= lanes:
        return 1
    if elements <= lanes:
        return -(-WIDE_LANES * elements // lanes)
    data = -(-elements // lanes)
    return data + -(-data // lanes)
