# SPDX-License-Identifier: Apache-2.0
"""The switch with four common programs and 64-byte packets: alone, on shared memory, and on veth links."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from railweave._native import load as native
from railweave.benchmarks.harness import REPORT, OnPhase, Parameters, Reading
from railweave.benchmarks.namespaces import in_namespace_of
from railweave.benchmarks.programs import IN_PORT, OUT_PORT, PROGRAMS, Program
from railweave.benchmarks.switch_links import Network, loaded, network
from railweave.experiments import statistics
from railweave.experiments.cpu import TICKS_PER_S, cpu_times
from railweave.experiments.errors import ResultError
from railweave.switch import compiler
from railweave.switch.pipeline import Pipeline
from railweave.topologies.planes import planes

BATCH, BATCHES = 10_000, 15  # packets per sample, and samples of which the median counts
WINDOWS = (32, 128, 512)  # frames in flight
TRIAL_S = 0.15
ARGUMENTS = {"embedded": ("--super-packet-bytes", "0")}  # every packet is a frame
SHARED = "embedded, shared memory"  # between switch and generator, instead of veth links and packet sockets

_Loop = Callable[[bytes, bytes, int, float], dict[str, float]]  # sends a frame and expects another one
LIMIT = (
    "programs alone: one core; with I/O: a core for the switch and one for the generator, most of it for the "
    "kernel, which moves each frame alone"
)
NOTES = (
    "programs: one flow of 64-byte packets (60 bytes without frame check sequence), with the number of table "
    "entries of NIKSS's artifact.",
    "per core: packets per second of processor time of the switch's process. The kernel's work in the "
    "generator's context is not included.",
    f"{SHARED}: frames pass through rings in memory, so the kernel moves none.",
    "NIKSS: published, not measured: XDP on one core of another machine, with network cards (Osiński et "
    "al., CoNEXT 2022, Figure 6).",
)


async def measure(
    targets: Sequence[str], seconds: float, folder: Path, on_phase: OnPhase
) -> AsyncIterator[Reading]:
    """Measure the engine without sockets, then each target on links for `seconds`, with every program.

    Raises ResultError for a wrong packet or none, and LabError if a target does not start.
    """
    for program in PROGRAMS:
        on_phase(f"{program.title}, engine")
        expected, readings = alone(program)
        for reading in readings:
            yield reading
        for target in (SHARED, *targets):
            on_phase(f"{program.title}, {target}")
            yield await _with_io(program, expected, target, seconds, folder)


def alone(program: Program) -> tuple[bytes, list[Reading]]:
    """Measure the engine in this process. Return the packet that leaves, and the readings.

    The program is interpreted, and compiled if there is a compiler.
    """
    pipeline, readings = loaded(program.files, program.updates), []
    expected = _result(program, pipeline)
    for engine in ("interpreted", "compiled"):
        if engine == "compiled":
            try:
                compiler.compiled(pipeline.native)
            except compiler.NotCompiled:
                break
            if (now := _result(program, pipeline)) != expected:
                raise ResultError(f"compiled, {program.title} sends {now.hex()}", expected.hex(), REPORT)
        nanoseconds = _median_ns(program, pipeline)
        numbers = {
            "packet": (nanoseconds, "ns"),
            "rate": (1e3 / nanoseconds, "Mpps/core"),
            "NIKSS": (program.published_mpps, "Mpps/core"),
        }
        parameters: Parameters = {"program": program.title, "entries": len(program.entries), "engine": engine}
        readings.append(Reading("programs alone", parameters, numbers))
    return expected, readings


def _result(program: Program, pipeline: Pipeline) -> bytes:
    left = pipeline.inject(IN_PORT, program.frame)
    if [port for port, _ in left] != [OUT_PORT]:
        ports = [port for port, _ in left]
        raise ResultError(f"packets of {program.title} left by ports {ports}", f"one by {OUT_PORT}", REPORT)
    return left[0][1]


def _median_ns(program: Program, pipeline: Pipeline) -> float:
    packets = [(IN_PORT, program.frame)] * BATCH
    taken = []
    for _ in range(BATCHES):
        nanoseconds, emitted = pipeline.native.benchmark(packets, 1)
        if emitted != BATCH:
            raise ResultError(f"{emitted} packets left the engine", f"{BATCH}", REPORT)
        taken.append(nanoseconds / BATCH)
    return statistics.median(taken)


async def _with_io(program: Program, expected: bytes, target: str, seconds: float, folder: Path) -> Reading:
    topology = planes(2, ["ina"], 0)
    command = "embedded" if target == SHARED else target
    with network(topology, folder, plain_frames=target == "bmv2") as net:
        links = {port: f"shm:bench-{os.getpid()}-{port}" for port in net.interfaces}
        interfaces = links if target == SHARED else net.interfaces
        arguments = ARGUMENTS.get(command, ())
        async with net.switch(command, program.files, program.updates, arguments, interfaces) as pid:
            with contextlib.nullcontext(_shared(links)) if target == SHARED else _sockets(net) as loop:
                drive = partial(_drive, program, expected, target, loop)
                trials = {window: (await drive(window, TRIAL_S))["right"] for window in WINDOWS}
                window = max(trials, key=lambda each: trials[each])
                before = cpu_times({target: pid})
                counts = await drive(window, seconds)
                used_s = max((cpu_times({target: pid}) - before).services_s, 1 / TICKS_PER_S)
    if not counts["right"]:
        raise ResultError(f"{target}: no packet in {seconds:g} s", "packets", f"read its log in {folder}")
    numbers = {
        "rate": (counts["right"] / counts["seconds"] / 1e6, "Mpps"),
        "per core": (counts["right"] / used_s / 1e6, "Mpps/core"),
        "window": (window, "packets"),
        "lost": (counts["lost"], "packets"),
    }
    return Reading("programs with I/O", {"program": program.title, "target": target}, numbers)


async def _drive(
    program: Program, expected: bytes, target: str, loop: _Loop, window: int, seconds: float
) -> dict[str, float]:
    """Run the generator. ResultError if a packet is wrong."""
    counts = await asyncio.to_thread(loop, program.frame, expected, window, seconds)
    if counts["wrong"]:
        raise ResultError(
            f"{target}: {counts['wrong']} wrong packets of {program.title}", expected.hex(), REPORT
        )
    return counts


def _shared(links: Mapping[int, str]) -> _Loop:
    return partial(native.loop_shared, links[IN_PORT], links[OUT_PORT])


@contextlib.contextmanager
def _sockets(net: Network) -> Iterator[_Loop]:
    """Yield a loop over packet sockets on the hosts' ends of the links to IN_PORT and OUT_PORT."""
    nics = {nic.port: nic for nic in net.topology.planes[0].nics}
    with contextlib.ExitStack() as stack:
        fds = []
        for port in (IN_PORT, OUT_PORT):
            nic = nics[port]
            fd = in_namespace_of(net.namespaces.pid(nic.host), partial(native.packet_socket, nic.interface))
            stack.callback(os.close, fd)
            fds.append(fd)
        yield partial(native.loop_frame, fds[0], fds[1])
