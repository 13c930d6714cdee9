# SPDX-License-Identifier: Apache-2.0
"""One host of the benchmark: sends super-packets, one window at a time, and prints what came back.

`drive` contributes to the slots of a group for a time, `latency` one datagram at a time, and `reflect` sends
everything back until it is killed.
"""

from __future__ import annotations

import json
import select
import socket
import struct
import sys
import time

import numpy as np

SOL_UDP, UDP_SEGMENT, UDP_GRO = 17, 103, 104
SO_SNDBUFFORCE, SO_RCVBUFFORCE = 32, 33
BUFFER_BYTES = 32 << 20
HEADER = struct.Struct(">BBHBBHII")
HEADER_BYTES = 16
ROUND_OFFSET = 8
QUIET_S = 1.0


def udp_socket(address: tuple[str, int], segment_bytes: int) -> socket.socket:
    """A bound socket that sends and receives datagrams of one size, many at once."""
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER_BYTES)
    udp.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, BUFFER_BYTES)
    udp.setsockopt(SOL_UDP, UDP_GRO, 1)
    if segment_bytes:
        udp.setsockopt(SOL_UDP, UDP_SEGMENT, segment_bytes)
    udp.bind(address)
    return udp


def receive(udp: socket.socket, segment_bytes: int) -> int:
    """How many datagrams came at once; 0 after a long silence."""
    ready, _, _ = select.select([udp], [], [], QUIET_S)
    return -(-len(udp.recv(1 << 16)) // segment_bytes) if ready else 0


class Contributions:
    """Super-packets of contributions: block by block through the slots, copy by copy, round by round."""

    def __init__(self, worker: int, lanes: int, slots: int, segments: int) -> None:
        """`slots` must be a multiple of `segments`, so that a super-packet stays inside one block."""
        self._blocks = slots // segments
        self._packets = []
        for copy in (0, 1):
            for first in range(0, slots, segments):
                array = np.zeros((segments, HEADER_BYTES + 4 * lanes), np.uint8)
                for i in range(segments):
                    header = HEADER.pack(0x10, 0, 1, worker, 0, (first + i) * 2 + copy, 0, 0xCAFE)
                    array[i, :HEADER_BYTES] = np.frombuffer(header, np.uint8)
                self._packets.append(array)

    def packet(self, number: int) -> memoryview:
        """The payload of the `number`-th super-packet."""
        round_, place = divmod(number, len(self._packets))
        array = self._packets[place]
        array[:, ROUND_OFFSET : ROUND_OFFSET + 4] = np.frombuffer(struct.pack(">I", round_), np.uint8)
        return array.data.cast("B")

    @property
    def window(self) -> int:
        """How many super-packets may be on their way: one per slot."""
        return self._blocks


def drive(
    udp: socket.socket, to: tuple[str, int], load: Contributions, size: int, segments: int, seconds: float
) -> dict[str, float]:
    """Closed loop for a time; datagrams that came back per second."""
    sent = received = 0
    start = last = time.perf_counter()
    while last - start < seconds:
        while sent < received // segments + load.window:
            udp.sendto(load.packet(sent), to)
            sent += 1
        count = receive(udp, size)
        if count == 0:  # a peer was started earlier, and has ended
            break
        received += count
        last = time.perf_counter()
    return {"pps": received / (last - start), "received": received, "missing": sent * segments - received}


def latency(
    udp: socket.socket, to: tuple[str, int], load: Contributions, size: int, seconds: float
) -> dict[str, float]:
    """One datagram at a time; the median time until it comes back."""
    taken = []
    start = time.perf_counter()
    number = 0
    while time.perf_counter() - start < seconds:
        payload = load.packet(number)
        number += 1
        before = time.perf_counter()
        udp.sendto(payload[:size], to)
        if receive(udp, size) == 0:  # a peer was started earlier, and has ended
            break
        taken.append(time.perf_counter() - before)
    return {"median_us": float(np.median(taken)) * 1e6, "p99_us": float(np.quantile(taken, 0.99)) * 1e6}


def reflect(udp: socket.socket) -> None:
    """Send everything back, until killed."""
    while True:
        data, peer = udp.recvfrom(1 << 16)
        udp.sendto(data, peer)


def main() -> None:
    """Options come as a JSON object, a line on stdin starts it, the result is a JSON line."""
    options = json.loads(sys.argv[1])
    size = HEADER_BYTES + 4 * options["lanes"]
    segments = options["segments"]
    udp = udp_socket(
        (options["address"], options["port"]), size if segments > 1 or options["kind"] == "reflect" else 0
    )
    print("ready", flush=True)
    if options["kind"] == "reflect":
        reflect(udp)
    load = Contributions(options["worker"], options["lanes"], options["slots"], segments)
    to = (options["to"], 5257)
    sys.stdin.readline()
    if options["kind"] == "latency":
        result = latency(udp, to, load, size, options["seconds"])
    else:
        result = drive(udp, to, load, size, segments, options["seconds"])
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
