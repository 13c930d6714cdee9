# SPDX-License-Identifier: Apache-2.0
"""The frames that a netreduce switch gets and sends during a call: ICRCs by scapy, sums, other traffic."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import socket
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
from scapy.contrib.roce import BTH
from scapy.layers.inet import IP
from scapy.layers.l2 import Ether
from system.namespaces import inside

from railweave._native import roce
from railweave.experiments.hosts import JobOptions, start_job
from railweave.topologies.lab.lab import Lab
from railweave.topologies.lab.namespaces import interface_of_port
from railweave.topologies.lab.options import LabOptions
from railweave.topologies.planes import planes

DEADLINE_S = 60.0
SETTLE_S = 10.0
RANKS = 3
ALL_PROTOCOLS = 0x0003
BUFFER = 1 << 24
SO_RCVBUFFORCE = 33
Frames = tuple[list[bytes], list[bytes]]  # into the switch, and out of it

PROGRAM = """
import numpy as np
import railweave

with railweave.init() as comm:
    every = [np.random.default_rng(rank).integers(-(2**31), 2**31, 5000, np.int32) for rank in range(3)]
    np.testing.assert_array_equal(comm.all_reduce(every[comm.rank]), np.sum(every, axis=0, dtype=np.int32))
    assert comm.all_reduce(np.array([comm.rank], np.int32), op="max")[0] == 2  # by the hosts
"""


@contextlib.contextmanager
def taps(lab: Lab) -> Iterator[list[socket.socket]]:
    """Open sockets that see all frames of the switch's ports. Turn offloads off at ports and hosts."""
    (plane,) = lab.topology.planes
    plain = [sys.executable, "-m", "railweave.topologies.lab.offloads"]
    with ExitStack() as stack:
        opened = []
        for nic in plane.nics:
            port = interface_of_port(nic.switch, nic.port)
            lab.read(nic.host, [*plain, nic.interface])
            lab.read(nic.switch, [*plain, port])
            descriptor = os.open(f"/proc/{lab.pid(nic.switch)}/ns/net", os.O_RDONLY)
            stack.callback(os.close, descriptor)
            with inside(descriptor):
                tap = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ALL_PROTOCOLS))
                stack.enter_context(tap)
                tap.bind((port, ALL_PROTOCOLS))
            tap.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER)
            tap.setblocking(False)
            opened.append(tap)
        yield opened


def read(tap: socket.socket, frames: Frames) -> None:
    """Add the RoCE frames that a tap has seen to `frames`."""
    with contextlib.suppress(BlockingIOError):
        while True:
            frame, (_, _, direction, *_) = tap.recvfrom(65536)
            if BTH in Ether(frame):
                frames[direction == socket.PACKET_OUTGOING].append(frame)


def read_all(opened: list[socket.socket]) -> Frames:
    """Return all frames, after the frames that the switch only forwards have left it."""
    frames: Frames = ([], [])
    latest = time.monotonic() + SETTLE_S
    while True:
        for tap in opened:
            read(tap, frames)
        left = latest - time.monotonic()
        if left <= 0 or not (Counter(of_strangers(*frames)) - Counter(of_strangers(*frames[::-1]))):
            return frames
        select.select(opened, [], [], left)


def run(folder: Path) -> Frames:
    """Run the program in a lab, and return all frames."""
    program = folder / "program.py"
    program.write_text(PROGRAM)

    async def work() -> Frames:
        topology = planes(RANKS, ["netreduce"])
        async with asyncio.timeout(DEADLINE_S), Lab(topology, LabOptions(folder / "lab")) as lab:
            with taps(lab) as opened:
                await start_job(lab, JobOptions("job", [sys.executable, str(program)]))
                async for _ in lab.events():
                    pass
                return read_all(opened)

    return asyncio.run(work())


def number(frame: bytes) -> int:
    return int(Ether(frame)[BTH].dqpn)


def numbers_of(frames: list[bytes], others: list[bytes]) -> set[int]:
    """Return the queue pair numbers of the connections that the switch adds up: `others` lack these numbers.

    Sender and receiver use different numbers for such a connection. They share the other numbers.
    """
    return set(map(number, frames)) - set(map(number, others))


def of_strangers(frames: list[bytes], others: list[bytes]) -> list[bytes]:
    """Return the frames that the switch only forwards, without their UDP checksums.

    Packets that leave together get a UDP checksum (output_queue.hpp).
    """
    summed = numbers_of(frames, others)
    return [frame[:40] + frame[42:] for frame in frames if number(frame) not in summed]


def test_frames(tmp_path: Path) -> None:
    to_switch, from_switch = run(tmp_path)

    for frame in to_switch + from_switch:
        decoded = Ether(frame)
        sent, decoded[BTH].icrc = decoded[BTH].icrc, None
        assert Ether(bytes(decoded))[BTH].icrc == sent

    summed, receivers = numbers_of(to_switch, from_switch), numbers_of(from_switch, to_switch)
    assert len(summed) == len(receivers) == RANKS
    strangers = Counter(of_strangers(to_switch, from_switch))
    assert strangers
    assert strangers == Counter(of_strangers(from_switch, to_switch))

    given: dict[str, dict[int, np.ndarray]] = defaultdict(dict)  # by sender and PSN
    for frame in to_switch:
        if number(frame) in summed:
            given[Ether(frame)[IP].src][Ether(frame)[BTH].psn] = lanes(frame)
    firsts = {sender: min(packets) for sender, packets in given.items()}
    sums = [
        np.sum([given[sender][first + index] for sender, first in firsts.items()], axis=0, dtype=np.int32)
        for index in range(min(map(len, given.values())))
    ]
    assert len(sums) == -(-5000 // len(sums[0]))
    places = set()
    for frame in from_switch:
        if number(frame) in receivers:
            sender, psn = Ether(frame)[IP].src, Ether(frame)[BTH].psn
            np.testing.assert_array_equal(lanes(frame), sums[psn - firsts[sender]])
            places.add((sender, psn - firsts[sender]))
    assert len(places) == RANKS * len(sums)


def lanes(frame: bytes) -> np.ndarray:
    fault, _, _, transport = roce.open_frames(frame)[0]
    assert fault is roce.FrameFault.NONE
    packet = roce.parse(transport)
    assert packet
    return np.frombuffer(packet["payload"], ">i4").astype(np.int32)
