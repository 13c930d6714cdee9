# SPDX-License-Identifier: Apache-2.0
"""The parameter server of one job on its socket: `python -m railweave.experiments.contenders.atp.serve FILE`.

The server prints `ready` when it listens, and serves until it is killed.
"""

from __future__ import annotations

import contextlib
import json
import select
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from railweave.experiments.contenders.atp.endpoint import LARGEST, udp_socket
from railweave.experiments.contenders.atp.packet import server_port, worker_port
from railweave.experiments.contenders.atp.server import Server
from railweave.topologies.values import build

AT_ONCE = 64  # packets received in a row, before the next check of the socket


@dataclass(frozen=True)
class Configuration:
    """The configuration of a job's server."""

    number: int
    address: str  # of the server
    receivers: tuple[str, ...]  # address for the results of each rank


def serve(configuration: Configuration) -> None:
    """Serve until the process is killed."""
    at, number = configuration.address, configuration.number
    server = Server(number, len(configuration.receivers))
    ways = [(receiver, worker_port(number)) for receiver in configuration.receivers]
    sockets = udp_socket(at, server_port(number))
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
    with contextlib.suppress(KeyboardInterrupt):
        serve(build(Configuration, json.loads(Path(sys.argv[1]).read_text()), "configuration"))
