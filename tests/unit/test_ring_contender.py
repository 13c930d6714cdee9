# SPDX-License-Identifier: Apache-2.0
"""The ring contender, over TCP and over Multipath TCP."""

from __future__ import annotations

import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from free_ports import free_port

from railweave.experiments.contenders import Array, Contender, Job, mptcp
from railweave.experiments.contenders.ring import HELLO, Ring, accept, meet, reach

RANKS = 3
DEADLINE_S = 60.0
JOB = Job(Contender("ring", "ring"), RANKS, ("lo",), {"lo": ("127.0.0.1",) * RANKS}, "", DEADLINE_S, {})


def multipath_connections() -> int:
    """Return the number of connections that this namespace has accepted as Multipath TCP."""
    return mptcp.multipath_counters(Path("/proc/net/netstat").read_text())["MPCapableACKRX"]


def reduce_all(count: int, dtype: type, op: str, *, mptcp: bool) -> list[Array]:
    def work(rank: int, port: int) -> Array:
        ring = Ring(rank, JOB, mptcp=mptcp, port=port)
        given = np.arange(count).astype(dtype) * (rank + 1)
        out = given.copy()
        for _ in range(2):
            ring.all_reduce(given, out, op)
        ring.barrier()
        ring.close()
        return out

    with free_port() as port, ThreadPoolExecutor(RANKS) as ranks:
        return list(ranks.map(work, range(RANKS), [port] * RANKS))


@pytest.mark.parametrize("count", [1, 1000, 100_000])
@pytest.mark.parametrize(("op", "factor"), [("sum", 6), ("max", 3), ("min", 1), ("avg", 2)])
def test_a_ring_reduces(count: int, op: str, factor: int) -> None:
    for result in reduce_all(count, np.int32, op, mptcp=False):
        np.testing.assert_array_equal(result, np.arange(count) * factor)


def test_a_ring_reduces_over_multipath_tcp() -> None:
    if obstacle := mptcp.Kind(Contender("mptcp", "mptcp")).obstacle():
        pytest.skip(obstacle)
    before = multipath_connections()
    for result in reduce_all(100_000, np.float32, "sum", mptcp=True):
        np.testing.assert_array_equal(result, np.arange(100_000, dtype=np.float32) * 6)
    assert multipath_connections() - before >= RANKS


def test_ranks_that_do_not_come_are_an_error() -> None:
    for rank in range(2):
        with free_port() as port, pytest.raises(TimeoutError):
            meet(rank, 2, ("127.0.0.1", port), 1, time.monotonic() + 0.2)


@pytest.mark.parametrize("sent", [b"", b"abc", HELLO.pack(0, 1), HELLO.pack(9, 1)])
def test_a_client_that_is_no_rank_is_an_error(sent: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as pool:
        accepting = pool.submit(accept, server, 0, 3, time.monotonic() + DEADLINE_S)
        with socket.create_connection(server.getsockname()) as peer:
            peer.sendall(sent)
            peer.shutdown(socket.SHUT_WR)
            with pytest.raises(ConnectionError, match="a client"):
                accepting.result(DEADLINE_S / 2)


def test_a_rank_that_comes_twice_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as pool:
        accepting = pool.submit(accept, server, 0, 3, time.monotonic() + DEADLINE_S)
        for _ in range(2):
            reach(server.getsockname(), 1, 5000, time.monotonic() + DEADLINE_S).close()
        with pytest.raises(ConnectionError, match="a client calls itself rank 1 of 3"):
            accepting.result(DEADLINE_S / 2)


def test_a_first_rank_that_leaves_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as pool:
        meeting = pool.submit(meet, 1, 2, server.getsockname(), 1, time.monotonic() + DEADLINE_S)
        peer, _ = server.accept()
        with peer:
            peer.sendall(b"7")
            peer.shutdown(socket.SHUT_WR)
            with pytest.raises(ConnectionError, match="has left"):
                meeting.result(DEADLINE_S / 2)
