# SPDX-License-Identifier: Apache-2.0
"""A switch process on veth links under closed-loop load of a native generator."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from railweave._native import load as native
from railweave.benchmarks.aggregation import FIRST_WORKER_PORT, SLOTS, UDP_PORT, VIRTUAL_IP, Scenario
from railweave.benchmarks.harness import REPORT, OnPhase, Parameters, Reading
from railweave.benchmarks.namespaces import in_namespace_of
from railweave.benchmarks.switch_links import network
from railweave.controller import tables
from railweave.experiments.errors import ResultError
from railweave.topologies.lab.namespaces import Namespaces

SOL_UDP, UDP_GRO = 17, 104
SO_SNDBUFFORCE, SO_RCVBUFFORCE = 32, 33
BUFFER_BYTES = 32 << 20
SEGMENTS = 60  # packets per super-packet: 256 lanes fill an IP packet with 62
WINDOWS = (4, 8, 16, 32, 64, 128, 256, SLOTS)
TRIAL_S, WARM_UP_S = 0.15, 0.1
ROUNDS = 1_000_000  # more than any switch completes in a trial
FRAME_OVERHEAD = 14 + 20 + 8 + 16  # Ethernet, IPv4, UDP and the aggregation header
ECHO = "echo"  # not a switch: packet I/O and the kernel alone
LIMIT = "a core for the switch and one for the generator; the target echo shows the limit of packet I/O"
NOTES = (
    "sums: contributions per second whose correct sum came back; the switch sends as many results.",
    "window: chunks in flight per host; per frame: packets per super-packet.",
)
GIVE_UP = 0.5  # after a window with less than this part of the best speed, larger ones are not tried


async def measure(
    scenario: Scenario, targets: Sequence[str], seconds: float, folder: Path, on_phase: OnPhase
) -> AsyncIterator[Reading]:
    """Find the best window of each target, then load it for `seconds`. The first one is the embedded switch.

    Raises ResultError for a wrong result or none, and LabError if a target does not start.
    """
    ours = 0.0
    for target in targets:
        on_phase(target)
        parameters: Parameters = {"target": target, **scenario.size}
        trials: dict[int, float] = {}
        async with _switch(scenario, target, folder) as namespaces:
            with _sockets(scenario, namespaces) as fds:
                for number, window in enumerate(WINDOWS):
                    counts = await _drive(scenario, target, fds, window, number, TRIAL_S)
                    trials[window] = counts["right"] / counts["seconds"]
                    if trials[window] < GIVE_UP * max(trials.values()):
                        break
                best = max(trials, key=lambda window: trials[window])
                counts = await _drive(scenario, target, fds, best, len(WINDOWS), seconds)
        if not counts["right"]:
            raise ResultError(f"{target}: no result in {seconds:g} s", "results", f"read its log in {folder}")
        pps = counts["right"] / counts["seconds"]
        ours = ours or pps
        numbers = {
            "sums": (pps, "1/s"),
            "input": (8 * (FRAME_OVERHEAD + 4 * scenario.lanes) * pps / 1e6, "Mbit/s"),
            "window": (best, "chunks"),
            "per frame": (_segments(target, best), "packets"),
            "sent again": (counts["repeated"], "packets"),
        }
        if target != targets[0]:
            numbers["embedded is"] = (ours / pps, "times")
        yield Reading("load", parameters, numbers)
        for window, pps in trials.items():
            yield Reading("windows", {**parameters, "window": window}, {"sums": (pps, "1/s")})


async def _drive(
    scenario: Scenario, target: str, fds: list[int], window: int, number: int, seconds: float
) -> dict[str, float]:
    """Run the generator, with rounds after those of earlier runs. ResultError if a sum is wrong."""
    chunks = (scenario.lanes, _segments(target, window), window, number * ROUNDS)
    counts: dict[str, float] = await asyncio.to_thread(
        native.drive, fds, *chunks, WARM_UP_S, seconds, target == ECHO
    )
    if counts["wrong"]:
        raise ResultError(f"{counts['wrong']} wrong sums under load", "the sums of contributions", REPORT)
    return counts


def _segments(target: str, window: int) -> int:
    return 1 if target == "bmv2" else min(SEGMENTS, max(1, window // 2))


@contextlib.asynccontextmanager
async def _switch(scenario: Scenario, target: str, out: Path) -> AsyncIterator[Namespaces]:
    """Start a switch with the program and the group, on links to the workers' namespaces."""
    [switch] = scenario.topology.planes[0].switches
    with network(scenario.topology, out, plain_frames=target == "bmv2") as net:
        if target == ECHO:
            _give_neighbour(scenario, net.namespaces)
            ports = in_namespace_of(net.namespaces.pid(switch.name), partial(_echo, net.interfaces))
            try:
                yield net.namespaces
            finally:
                ports.stop()
        else:
            async with net.switch(target, scenario.files, scenario.updates()):
                yield net.namespaces


def _echo(interfaces: Mapping[int, str]) -> native.Echo:
    """Return ports without an engine. UDP packets return to their senders, unchanged in size and number."""
    ports = native.Echo(list(interfaces.items()))
    ports.start()
    return ports


def _give_neighbour(scenario: Scenario, namespaces: Namespaces) -> None:
    """Enter the virtual address into the hosts' neighbour tables, since an echo does not answer ARP."""
    mac = tables.virtual_mac(tables.ip_number(VIRTUAL_IP)).to_bytes(6, "big").hex(":")
    for nic in scenario.nics:
        entry = f"neighbour replace {VIRTUAL_IP} lladdr {mac} dev {nic.interface} nud permanent\n"
        namespaces.feed(nic.host, ["ip", "-batch", "-"], entry)


@contextlib.contextmanager
def _sockets(scenario: Scenario, namespaces: Namespaces) -> Iterator[list[int]]:
    """Yield the descriptor of a connected UDP socket in every worker's namespace."""
    with contextlib.ExitStack() as stack:
        fds = []
        for worker, nic in enumerate(scenario.nics):
            connect = partial(_socket, nic.address, FIRST_WORKER_PORT + worker)
            udp = stack.enter_context(in_namespace_of(namespaces.pid(nic.host), connect))
            fds.append(udp.fileno())
        yield fds


def _socket(address: str, port: int) -> socket.socket:
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER_BYTES)
    udp.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, BUFFER_BYTES)
    udp.setsockopt(SOL_UDP, UDP_GRO, 1)
    udp.bind((address, port))
    udp.connect((VIRTUAL_IP, UDP_PORT))
    return udp
