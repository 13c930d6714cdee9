# SPDX-License-Identifier: Apache-2.0
"""`railweave bench receive`: the cost of a packet for a core, from memory and through the kernel."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from railweave._native import ina, load
from railweave._native.collectives import DType, ReduceOp
from railweave.benchmarks import namespaces
from railweave.benchmarks.harness import REPORT, Benchmark, OnPhase, Parameters, Part, Reading
from railweave.experiments.errors import OptionError, ResultError

KINDS = ("spread", "result")
MEMORY, SUPER_PACKETS, PACKETS = "memory", "super-packets", "packets"
LINK_GBPS = 100
IP_UDP = 20 + 8
ON_THE_WIRE = 7 + 1 + 14 + 4 + 12  # preamble, start of frame, Ethernet header, check sequence, gap
MOST_LANES = 2048  # of a RESULT
SMALL = 64  # bytes, which cost almost nothing to copy
MTUS = (128, 65535)
SEALED, PLAIN = "sealed", "plain"
ENDPOINT_CASES = [("float32", op) for op in ("sum", "avg", "max")] + [("int32", op) for op in ("sum", "avg")]
ENDPOINT_LANES, ENDPOINT_SLOTS, ENDPOINT_ELEMENTS, ENDPOINT_CALLS = (256, 64), 512, 1 << 20, 10
CHECKED = "Every received byte was checked."
RECEIVE_NOTES = (
    "packet: time of one core; from memory its processor time, through the kernel elapsed time.",
    f"at 64 B: the same with a payload of {SMALL} bytes, so almost without copying.",
    "busy: part of the time in which the receiving thread ran. If it is small, the sender or other processes "
    "were the limit, and a core can receive more.",
    f"cores: number of such cores that a link of {LINK_GBPS} Gbit/s needs. For comparison, the multicast "
    "allgather paper (arXiv 2408.13356, abstract) leaves this work to a SmartNIC and says that it scales to "
    "links of 1.6 Tbit/s.",
    CHECKED,
)
WORKERS_NOTES = (
    "workers: one worker has two trees, or two workers have one each. The time is the processor time per "
    "packet of the worker that takes longer, from memory or from full queues of the kernel.",
    CHECKED,
)
ENDPOINT_NOTES = (
    "endpoint: processor time per chunk, without network and switch. transmit finds, quantises and builds "
    "the next chunk; receive judges a result and writes its values; core is the rate of both together. "
    "The packets of a job are sealed.",
)


def benchmark(mtus: Sequence[int], seconds: float) -> Benchmark:
    """Return the benchmark: `seconds` for each line. OptionError for an MTU that does not exist."""
    for mtu in mtus:
        if not MTUS[0] <= mtu <= MTUS[1]:
            raise OptionError(f"--mtu {mtu}", f"{MTUS[0]} to {MTUS[1]} bytes", "correct --mtu")
    cpus, missing = sorted(os.sched_getaffinity(0)), namespaces.missing()
    work = _Receivers((MEMORY,) if missing else (MEMORY, SUPER_PACKETS, PACKETS), mtus, seconds, cpus)
    parts = {
        "receive": Part(work.one_core, "one core", RECEIVE_NOTES),
        "workers": Part(work.two_workers, "one or two cores", WORKERS_NOTES),
        "endpoint": Part(endpoint, "one core", ENDPOINT_NOTES),
    }
    lacking = {"through the kernel": missing, "two workers": "" if len(cpus) > 1 else "there is only one CPU"}
    return Benchmark("receive", parts, tuple(f"{what}: {why}" for what, why in lacking.items() if why))


@dataclass(frozen=True)
class _Receivers:
    """Cores that receive packets of each kind and size. Another core sends."""

    sources: Sequence[str]
    mtus: Sequence[int]
    seconds: float
    cpus: Sequence[int]

    async def one_core(self, _: Path, on_phase: OnPhase) -> AsyncIterator[Reading]:
        """Measure one core."""
        for source in self.sources:
            on_phase(f"from {source}")
            read = partial(self._readings, source)
            if source == MEMORY:
                readings = await asyncio.to_thread(read)
            else:
                readings = await asyncio.to_thread(namespaces.on_own_loopback, self.cpus[-1], read)
            for reading in readings:
                yield reading

    def _readings(self, source: str) -> list[Reading]:
        found = []
        for kind in KINDS:
            small_ns, _ = self._packet(source, kind, SMALL)
            for mtu in self.mtus:
                payload = payload_of(kind, mtu)
                ns, busy = self._packet(source, kind, payload)
                gbps = link_gbps(kind, payload, ns)
                numbers = {
                    "packet": (ns, "ns"),
                    "at 64 B": (small_ns, "ns"),
                    "busy": (100 * busy, "%"),
                    "link": (gbps, "Gbit/s"),
                    "cores": (LINK_GBPS / gbps, f"at {LINK_GBPS}G"),
                }
                parameters: Parameters = {"from": source, "kind": kind, "mtu": mtu, "payload": payload}
                found.append(Reading("receive", parameters, numbers))
        return found

    def _packet(self, source: str, kind: str, payload: int) -> tuple[float, float]:
        """Return the nanoseconds of a packet, and the part of the time in which the thread ran."""
        if source == MEMORY:
            counts = _checked(load.receive_from_memory, kind, payload, self.seconds)
            return counts["cpu"] / counts["packets"], counts["cpu"] / counts["clock"]
        rest = (self.seconds, source == SUPER_PACKETS, self.cpus[0])
        counts = _checked(load.receive_from_kernel, kind, payload, *rest)
        return counts["clock"] / counts["packets"], counts["cpu"] / counts["clock"]

    async def two_workers(self, _: Path, on_phase: OnPhase) -> AsyncIterator[Reading]:
        """Measure one worker with two trees, and two workers with a tree each, if there are two cores."""
        for source in self.sources if len(self.cpus) > 1 else ():
            on_phase(f"from {source}")
            super_packets = None if source == MEMORY else source == SUPER_PACKETS
            for kind, mtu in itertools.product(KINDS, self.mtus):
                payload = payload_of(kind, mtu)
                one_ns, two_ns = [
                    await asyncio.to_thread(self._by_workers, kind, payload, super_packets, count)
                    for count in (1, 2)
                ]
                numbers = {
                    "one worker": (one_ns, "ns"),
                    "two workers": (two_ns, "ns"),
                    "gain": (one_ns / two_ns, "times"),
                }
                yield Reading("workers", {"from": source, "kind": kind, "mtu": mtu}, numbers)

    def _by_workers(self, kind: str, payload: int, super_packets: bool | None, count: int) -> float:
        """Return the nanoseconds of a packet for the slowest of these workers."""
        rest = (self.seconds / 2, super_packets, self.cpus[-count:])
        counts = _checked(load.receive_by_workers, kind, payload, *rest)
        return counts["cpu"] / counts["packets"]


async def endpoint(_: Path, __: OnPhase) -> AsyncIterator[Reading]:
    """Measure an in-network endpoint: chunks that it makes, and results that it takes."""
    cases = itertools.product(ENDPOINT_LANES, (SEALED, PLAIN), ENDPOINT_CASES)
    for lanes, packets, (dtype, op) in cases:
        sealed = packets == SEALED
        counts = load.measure_endpoint(
            DType[dtype.upper()],
            ReduceOp[op.upper()],
            lanes,
            ENDPOINT_SLOTS,
            ENDPOINT_ELEMENTS,
            ENDPOINT_CALLS,
            sealed,
        )
        transmit, took = (counts[key] / counts["chunks"] for key in ("transmit_ns", "receive_ns"))
        numbers = {
            "transmit": (transmit, "ns"),
            "receive": (took, "ns"),
            "core": (32 * (lanes - sealed * ina.SEAL_LANES) / (transmit + took), "Gbit/s"),
        }
        yield Reading("endpoint", {"lanes": lanes, "packets": packets, "dtype": dtype, "op": op}, numbers)


def link_gbps(kind: str, payload: int, ns: float) -> float:
    """Return the rate of a link that delivers such a packet every `ns`, with all headers and gaps."""
    return 8 * (payload + beside(kind) + IP_UDP + ON_THE_WIRE) / ns


def payload_of(kind: str, mtu: int) -> int:
    """Return the largest payload of a packet of this kind in a frame of this MTU, in bytes."""
    room = mtu - IP_UDP - beside(kind)
    return room if kind == "spread" else min(room // 4, MOST_LANES) * 4


def beside(kind: str) -> int:
    """Return the bytes of such a datagram that are not payload: its header, and the code of a SPREAD."""
    return ina.HEADER_BYTES + (ina.SPREAD_CODE_BYTES if kind == "spread" else 0)


def _checked(
    receive: Callable[..., Mapping[str, int]], kind: str, payload: int, *rest: Any
) -> Mapping[str, int]:
    try:
        return receive(kind, payload, *rest)
    except RuntimeError as error:
        given = f"{kind} packets with {payload} bytes: {error}"
        raise ResultError(given, "the bytes that were sent", REPORT) from None
