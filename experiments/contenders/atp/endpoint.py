# SPDX-License-Identifier: Apache-2.0
"""A worker of ATP on its socket."""

from __future__ import annotations

import contextlib
import select
import socket
import subprocess
import sys
import time
from collections.abc import Mapping

from railweave.experiments.contenders import Array, Endpoint, Job
from railweave.experiments.contenders.atp.packet import server_port, worker_port
from railweave.experiments.contenders.atp.worker import Worker
from railweave.experiments.contenders.ring import left_s, meet

SERVER = "railweave.experiments.contenders.atp.serve"
MEETING_PORT = 29600  # of job 0; before the first call, and after the last
SO_NO_CHECK = 11  # asm-generic/socket.h: no UDP checksum, because switches change the packets
BUFFER_BYTES = 4 << 20
LARGEST = 1 << 11


def udp_socket(address: str, port: int) -> socket.socket:
    """Return a socket for packets that a switch may change."""
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.setsockopt(socket.SOL_SOCKET, SO_NO_CHECK, 1)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
    made.setblocking(False)
    made.bind((address, port))
    return made


class Atp(Endpoint):
    """One rank. The host of rank 0 also runs the parameter server, as a separate process."""

    def __init__(self, job: Job, rank: int, number: int = 0) -> None:
        """Open the socket. Return when all ranks and the server have opened theirs.

        `number` counts the jobs on the same switches.
        """
        addresses = job.addresses[job.planes[0]]
        self._timeout_s = job.timeout_s
        self._rank, self._ranks = rank, job.size
        self._meeting = addresses[0], MEETING_PORT + number
        self._server_at = addresses[0], server_port(number)
        self._worker = Worker(rank, job.size, number)
        self._socket = udp_socket(addresses[rank], worker_port(number))
        self._server: subprocess.Popen[bytes] | None = None
        self._failed = False
        if rank == 0:
            command = [sys.executable, "-m", SERVER, job.topology, job.planes[0], str(number)]
            self._server = subprocess.Popen(command, stdout=subprocess.PIPE)
            assert self._server.stdout is not None  # noqa: S101
            if not self._server.stdout.readline():
                raise OSError("the parameter server has not started")
        self._meet()

    def all_reduce(self, given: Array, out: Array, op: str) -> None:
        """Send all packets and receive all results."""
        self._failed = True
        self._worker.begin(given)
        deadline = time.monotonic() + self._timeout_s
        while not self._worker.done:
            now = time.monotonic()
            with contextlib.suppress(
                BlockingIOError
            ):  # a packet that the kernel refuses counts as lost, and is sent again
                while (packet := self._worker.transmit(now)) is not None:
                    self._socket.sendto(packet, self._server_at)
            wait_s = min(self._worker.deadline() - now, left_s(deadline))
            if select.select([self._socket], [], [], max(wait_s, 0))[0]:
                self._take()
        self._worker.finish(out)
        self._failed = False

    def _take(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                data, sender = self._socket.recvfrom(LARGEST)
                if sender == self._server_at:
                    self._worker.receive(data, time.monotonic())

    def counters(self) -> Mapping[str, Mapping[str, float]]:
        """Return how many packets were sent again."""
        return {"atp": {"retransmissions": self._worker.resends}}

    def close(self) -> None:
        """Leave together with all ranks, because the server must answer until then."""
        if not self._failed:
            self._meet()
        self._socket.close()
        if self._server is not None:
            self._server.terminate()
            self._server.wait()

    def _meet(self) -> None:
        meet(self._rank, self._ranks, self._meeting, 0, time.monotonic() + self._timeout_s)
