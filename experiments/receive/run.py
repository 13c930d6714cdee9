# SPDX-License-Identifier: Apache-2.0
"""One measurement of `railweave bench receive`: what a packet costs a core, by the way that it takes."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from railweave._native import ina, load, spread
from railweave.experiments import statistics
from railweave.experiments.errors import OptionError
from railweave.experiments.receive import own_network

KINDS = ("spread", "result")
MEMORY, SUPER_PACKETS, PACKETS = "memory", "super-packets", "packets"
WAYS = (MEMORY, SUPER_PACKETS, PACKETS)
LINKS_GBPS = (100, 400, 1600)
IP_UDP = 20 + 8
ON_THE_WIRE = 7 + 1 + 14 + 4 + 12  # preamble, start of frame, Ethernet header, check sequence, gap
MOST_LANES = 2048  # of a RESULT
SMALL = 64  # bytes, which cost next to nothing to copy
MTUS = (128, 65535)
REPEATS = 5
NOTES = (
    "ns/packet: time of one core; from memory its processor time, through the kernel elapsed time.",
    "at 64 B: the same with a payload of 64 bytes, so almost without copying.",
    "busy: part of the time in which the receiving thread ran; where it is small, the sender or other "
    "processes were the limit, and a core can receive more.",
    "100G, 400G, 1600G: cores that a link of this rate needs. For comparison, the multicast allgather "
    "paper (arXiv 2408.13356, abstract) leaves this work to a SmartNIC and says that it scales to links of "
    "1.6 Tbit/s.",
    "Every received byte was checked.",
)

PAIR_NOTE = (
    "gain: one worker has two trees, and two workers have one each; ns is the processor time per packet of "
    "the worker that takes longer, from memory or from full queues of the kernel after its work for IP and "
    "UDP.",
)

Reading = Mapping[str, int]  # packets, and nanoseconds on the clock and of the processor


class WrongBytes(Exception):
    """What was received is not in its place, or was lost on the way."""


@dataclass(frozen=True)
class Row:
    """One kind of packet of one size, on one way."""

    way: str
    kind: str
    mtu: int
    payload: int  # bytes
    ns: float  # of a core per packet: the median of the repeats
    best_ns: float
    small_ns: float  # the same for a payload of SMALL bytes
    busy: float  # part of the time that the receiving thread had work and a core

    @property
    def gbps(self) -> float:
        """What of a link one core takes, all headers and gaps included."""
        return 8 * (self.payload + beside(self.kind) + IP_UDP + ON_THE_WIRE) / self.ns

    def cores(self, link_gbps: int) -> int:
        """Such cores that a link needs, if all are as fast together as one is alone."""
        return math.ceil(link_gbps / self.gbps)


@dataclass(frozen=True)
class Pair:
    """What two workers bring, with a group each, against one that has both."""

    way: str
    kind: str
    mtu: int
    one_ns: float  # per packet of either group, until all are taken: the median of the repeats
    two_ns: float

    @property
    def gain(self) -> float:
        """How many times as fast two are."""
        return self.one_ns / self.two_ns


@dataclass(frozen=True)
class ReceiveSpeed:
    """What was measured."""

    rows: Sequence[Row]
    pairs: Sequence[Pair] = ()
    missing: str = ""  # why nothing came through the kernel

    def notes(self) -> list[str]:
        """Return the meaning of the numbers and the conditions of the measurement."""
        load_average = os.getloadavg()[0]
        lines = [
            *NOTES,
            *(PAIR_NOTE if self.pairs else ()),
            f"{os.cpu_count()} processors, load average {load_average:.1f}.",
        ]
        return [*lines, f"not measured through the kernel: {self.missing}"] if self.missing else lines


def run(mtus: Sequence[int], seconds: float, on_phase: Callable[[str], None]) -> ReceiveSpeed:
    """Measure each for `seconds`; OptionError for what is no MTU, WrongBytes if a byte is wrong."""
    for mtu in mtus:
        if not MTUS[0] <= mtu <= MTUS[1]:
            raise OptionError(f"--mtu {mtu}", f"{MTUS[0]} to {MTUS[1]} bytes", "correct --mtu")
    missing = own_network.missing()
    cpus = sorted(os.sched_getaffinity(0))
    rows = []
    for way in WAYS[:1] if missing else WAYS:
        on_phase(f"measuring packets {'from memory' if way == MEMORY else f'through the kernel, as {way}'}")
        for kind in KINDS:
            read = partial(_read, way, kind, seconds=seconds, send_on=cpus[0])
            measure = partial(_measure, way, kind, mtus, read)
            rows += measure() if way == MEMORY else own_network.run(cpus[-1], measure)
    pairs = []
    if len(cpus) > 1:
        on_phase("measuring two workers")
        ways = WAYS[:1] if missing else WAYS
        pairs = [_pair(way, kind, mtu, seconds, cpus[-2:]) for way in ways for kind in KINDS for mtu in mtus]
    return ReceiveSpeed(rows, pairs, missing)


def _pair(way: str, kind: str, mtu: int, seconds: float, cpus: Sequence[int]) -> Pair:
    """One worker and two in turns, so that whatever else the machine does is the same for both."""
    ns: tuple[list[float], list[float]] = ([], [])
    super_packets = None if way == MEMORY else way == SUPER_PACKETS
    payload = payload_of(kind, mtu)
    for _ in range(REPEATS):
        for workers, taken in enumerate(ns, 1):
            reading = _checked(
                load.receive_by_workers,
                kind,
                payload,
                seconds / REPEATS / 2,
                super_packets,
                cpus[-workers:],
            )
            taken.append(reading["cpu"] / reading["packets"])
    return Pair(way, kind, mtu, *map(statistics.median, ns))


def payload_of(kind: str, mtu: int) -> int:
    """Return the most bytes that a packet of this kind brings in a frame of this MTU."""
    room = mtu - IP_UDP - beside(kind)
    return room if kind == "spread" else min(room // 4, MOST_LANES) * 4


def beside(kind: str) -> int:
    """Return the bytes of such a datagram that are no payload: its header, and the code of a SPREAD."""
    return ina.HEADER_BYTES + (spread.CODE_BYTES if kind == "spread" else 0)


def _measure(way: str, kind: str, mtus: Sequence[int], read: Callable[[int], Reading]) -> list[Row]:
    rows = []
    small = statistics.median([_ns(way, read(SMALL)) for _ in range(REPEATS)])
    for mtu in mtus:
        payload = payload_of(kind, mtu)
        readings = [read(payload) for _ in range(REPEATS)]
        taken = [_ns(way, reading) for reading in readings]
        busy = statistics.median([reading["cpu"] / reading["clock"] for reading in readings])
        rows.append(Row(way, kind, mtu, payload, statistics.median(taken), min(taken), small, busy))
    return rows


def _read(way: str, kind: str, payload: int, *, seconds: float, send_on: int) -> Reading:
    if way == MEMORY:
        return _checked(load.receive_from_memory, kind, payload, seconds / REPEATS)
    return _checked(load.receive_from_kernel, kind, payload, seconds / REPEATS, way == SUPER_PACKETS, send_on)


def _checked(receive: Callable[..., Reading], kind: str, payload: int, *rest: Any) -> Reading:
    try:
        return receive(kind, payload, *rest)
    except RuntimeError as error:
        raise WrongBytes(f"{kind} packets with {payload} bytes: {error}") from None


def _ns(way: str, reading: Reading) -> float:
    return reading["cpu" if way == MEMORY else "clock"] / reading["packets"]


def as_json(result: ReceiveSpeed) -> dict[str, Any]:
    """The result for machines."""
    return {
        "ok": True,  # a wrong byte ends the measurement
        "rows": [
            {
                "way": row.way,
                "kind": row.kind,
                "mtu": row.mtu,
                "payload": row.payload,
                "ns_per_packet": round(row.ns, 1),
                "ns_best": round(row.best_ns, 1),
                "ns_at_64_bytes": round(row.small_ns, 1),
                "busy": round(row.busy, 3),
                "pps": round(1e9 / row.ns),
                "link_gbps": round(row.gbps, 2),
                "cores": {str(link): row.cores(link) for link in LINKS_GBPS},
            }
            for row in result.rows
        ],
        "pairs": [
            {
                "way": pair.way,
                "kind": pair.kind,
                "mtu": pair.mtu,
                "one_ns": round(pair.one_ns, 1),
                "two_ns": round(pair.two_ns, 1),
                "gain": round(pair.gain, 2),
            }
            for pair in result.pairs
        ],
        "missing": result.missing or None,
        "processors": os.cpu_count(),
        "load_average": os.getloadavg()[0],
    }
