# SPDX-License-Identifier: Apache-2.0
"""Run an endpoint or a server on a UDP socket."""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from railweave.sdk.machines import Array, Datagrams, Endpoint, Server

SOL_UDP, UDP_SEGMENT = 17, 103  # linux/udp.h
BUFFER_BYTES = 4 << 20
LARGEST = 1 << 13  # bytes of a datagram
AT_ONCE = 64  # datagrams between two looks at the clock; the kernel's limit of segments in a send
MOST_BYTES = 65_000  # of a send with segments, which the kernel makes of one large datagram

Place = tuple[str, int]


def udp_socket(at: Place) -> socket.socket:
    """Return a socket of a rank or a server. A switch that changes packets sets their UDP checksum to 0."""
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
    made.setblocking(False)
    try:
        made.bind(at)
    except OSError:
        made.close()
        raise
    return made


@dataclass
class Traffic:
    """Datagrams and their bytes."""

    sent: int = 0
    sent_bytes: int = 0
    received: int = 0
    received_bytes: int = 0


class Driver:
    """An endpoint on its socket."""

    def __init__(self, endpoint: Endpoint, at: Place, to: Place, also: Sequence[int] = ()) -> None:
        """Open the socket. All datagrams go to the place `to`. `also` are descriptors that end a turn."""
        self.endpoint = endpoint
        self._traffic = Traffic()
        self._to = to
        self._socket = udp_socket(at)
        self._room = [memoryview(bytearray(LARGEST)) for _ in range(AT_ONCE)]
        self._poll = select.poll()
        for descriptor in (self._socket.fileno(), *also):
            self._poll.register(descriptor, select.POLLIN)

    def call(self, given: Array, op: str, timeout_s: float) -> Array:
        """Make one call and return its result. Raises TimeoutError."""
        self.endpoint.begin(given, op)
        limit = time.monotonic() + timeout_s
        while not self.endpoint.done:
            if time.monotonic() > limit:
                raise TimeoutError(f"a call has not completed within {timeout_s:g} s")
            self.turn(limit)
        return self.endpoint.result

    def turn(self, latest: float = float("inf")) -> bool:
        """Send what is due, wait for datagrams until `latest`, and take them.

        Return whether a descriptor of `also` is readable.
        """
        self._send(self.endpoint.transmit(time.monotonic(), AT_ONCE))
        end = min(self.endpoint.deadline(), latest)
        wait_ms = None if end == float("inf") else max(0.0, 1000 * (end - time.monotonic()))
        ready = {descriptor for descriptor, _ in self._poll.poll(wait_ms)}
        own = self._socket.fileno()
        if own in ready:
            self.endpoint.receive(self._received(), time.monotonic())
        return bool(ready - {own})

    def traffic(self) -> Traffic:
        """Return what was sent and received since the last call of this method."""
        traffic, self._traffic = self._traffic, Traffic()
        return traffic

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def _send(self, datagrams: Datagrams) -> None:
        """Send datagrams. If the kernel refuses one, the endpoint sends it again later."""
        with contextlib.suppress(BlockingIOError):
            if isinstance(datagrams, np.ndarray):
                size = datagrams.shape[1]
                segments = [(SOL_UDP, UDP_SEGMENT, struct.pack("=H", size))]
                several = MOST_BYTES // size
                for first in range(0, len(datagrams), several):
                    part = datagrams[first : first + several]
                    self._socket.sendmsg([part.data], segments, 0, self._to)
                    self._sent(len(part), part.size)
                return
            for each in datagrams:
                self._socket.sendto(each, self._to)
                self._sent(1, len(each))

    def _sent(self, datagrams: int, size: int) -> None:
        self._traffic.sent += datagrams
        self._traffic.sent_bytes += size

    def _received(self) -> list[memoryview]:
        taken: list[memoryview] = []
        with contextlib.suppress(BlockingIOError):
            for room in self._room:
                taken.append(room[: self._socket.recv_into(room)])
        self._traffic.received += len(taken)
        self._traffic.received_bytes += sum(map(len, taken))
        return taken


def serve(server: Server, at: Place, receivers: Sequence[Place]) -> None:
    """Print `ready`, and answer datagrams until the process is killed. `receivers` are the ranks' places."""
    with udp_socket(at) as own:
        print("ready", flush=True)
        while True:
            select.select([own], [], [])
            with contextlib.suppress(BlockingIOError):
                for _ in range(AT_ONCE):
                    answer = server.receive(own.recv(LARGEST))
                    if answer is not None:
                        for to in places_of(answer[1], receivers):
                            own.sendto(answer[0], to)


def places_of(ranks: int, receivers: Sequence[Place]) -> list[Place]:
    """Return the places of these ranks, a bit for each, without repetition."""
    return list(dict.fromkeys(to for rank, to in enumerate(receivers) if ranks >> rank & 1))
