# SPDX-License-Identifier: Apache-2.0
"""The parameter server of a job on its socket.

    python -m railweave.experiments.contenders.atp.serve TOPOLOGY PLANE NUMBER

The server prints `ready` when it listens, and serves until it is killed. NUMBER counts the jobs on the same
switches.
"""

from __future__ import annotations

import contextlib
import select
import signal
import sys
from collections.abc import Sequence

from railweave.experiments.contenders.atp import fabric
from railweave.experiments.contenders.atp.endpoint import LARGEST, udp_socket
from railweave.experiments.contenders.atp.packet import server_port, worker_port
from railweave.experiments.contenders.atp.server import Server
from railweave.experiments.endless import STOP
from railweave.topologies.model import Plane
from railweave.topologies.serialize import load

AT_ONCE = 64  # packets received in a row, before the next check of the socket


def serve(plane: Plane, number: int) -> None:
    """Serve until the process is killed."""
    ways = [(receiver, worker_port(number)) for receiver in fabric.receivers(plane)]
    server = Server(number, len(ways))
    sockets = udp_socket(plane.nics[0].address, server_port(number))
    print("ready", flush=True)
    while True:
        select.select([sockets], [], [])
        with contextlib.suppress(BlockingIOError):
            for _ in range(AT_ONCE):
                answer = server.receive(sockets.recvfrom(LARGEST)[0])
                if answer is not None:
                    for way in _ways(answer[1], ways):
                        sockets.sendto(answer[0], way)


def _ways(ranks: int, ways: Sequence[tuple[str, int]]) -> Sequence[tuple[str, int]]:
    """Return the addresses and ports for results of these ranks, without duplicates."""
    return list(dict.fromkeys(way for rank, way in enumerate(ways) if ranks >> rank & 1))


if __name__ == "__main__":
    signal.signal(STOP, signal.SIG_IGN)  # it reaches all processes of a rank
    with contextlib.suppress(KeyboardInterrupt):
        serve(load(sys.argv[1]).plane(sys.argv[2]), int(sys.argv[3]))
