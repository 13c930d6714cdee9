# SPDX-License-Identifier: Apache-2.0
"""Rails that are down or refused while ranks join them.

The ranks try again. Then all ranks leave the rail out, or all of them name it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

import numpy as np
import pytest
from protocol.jobs import DEADLINE_S
from system.namespaces import filtered, inside, ip
from system.plane_network import PlaneNetwork, plane_network

from railweave.hosts.communicator import Communicator
from railweave.hosts.errors import JoinTimeout

SHORT_S = 1.0  # longer than the time after which a rank tries again


@pytest.fixture(scope="module", params=["tcp", "rdma"])
def lone_plane(request: pytest.FixtureRequest) -> Iterator[PlaneNetwork]:
    with plane_network(2, [request.param]) as made:
        yield made


@pytest.fixture(scope="module")
def tcp_plane() -> Iterator[PlaneNetwork]:
    with plane_network(2, ["tcp"]) as made:
        yield made


def nic(network: PlaneNetwork, plane: str, rank: int) -> str:
    return network.plane(plane).nics[rank].interface


@contextmanager
def down(network: PlaneNetwork, plane: str, rank: int) -> Iterator[None]:
    """Set a rank's interface down for the block. The interface keeps its address."""
    with inside(network.at(rank)):
        ip("link", "set", nic(network, plane, rank), "down")
    try:
        yield
    finally:
        with inside(network.at(rank)):
            ip("link", "set", nic(network, plane, rank), "up")


def refused(network: PlaneNetwork, plane: str, rank: int) -> AbstractContextManager[None]:
    """Let a firewall on a rank's host answer TCP connection attempts on a plane with RST."""
    rules = (
        "add chain ip wall input { type filter hook input priority 0; }\n"
        f"add rule ip wall input iifname {nic(network, plane, rank)} "
        "tcp flags syn / syn,ack reject with tcp reset\n"
    )
    return filtered(network.at(rank), "ip wall", rules)


def add_up(comm: Communicator) -> Communicator:
    for _ in range(20):
        assert (comm.all_reduce(np.ones(1000, np.int32)) == 2).all()
    return comm


@pytest.mark.parametrize("rank", [0, 1])  # rank 1 opens the connection
def test_a_rank_whose_only_rail_comes_up_late_joins(lone_plane: PlaneNetwork, rank: int) -> None:
    (plane,) = lone_plane.topology.planes
    with ExitStack() as until_up:
        until_up.enter_context(down(lone_plane, plane.name, rank))
        with lone_plane.ranks(add_up) as ranks:
            with pytest.raises(TimeoutError):
                ranks[rank].result(0.5)
            until_up.close()
            for joined in ranks:
                joined.result(DEADLINE_S)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_whose_only_rail_stays_down_ends_all_with_its_name(tcp_plane: PlaneNetwork, rank: int) -> None:
    with down(tcp_plane, "tcp", rank), tcp_plane.ranks(add_up, timeout_s=SHORT_S) as ranks:
        for joining in ranks:
            error = joining.exception(DEADLINE_S)
            assert isinstance(error, JoinTimeout), error
            assert "rail 'tcp'" in str(error)


def test_a_firewall_that_refuses_the_only_rail_is_named(tcp_plane: PlaneNetwork) -> None:
    with refused(tcp_plane, "tcp", 0), tcp_plane.ranks(add_up, timeout_s=SHORT_S) as ranks:
        for rank, joining in enumerate(ranks):
            error = joining.exception(DEADLINE_S)
            assert isinstance(error, JoinTimeout), error
            assert f"rail 'tcp' on {nic(tcp_plane, 'tcp', rank)}" in str(error)
            assert ("Connection refused" in str(error)) == (rank == 1), "it is the one that dials"
            assert "no firewall" in str(error)


def test_a_firewall_that_refuses_one_rail_leaves_the_other() -> None:
    with plane_network(2, ["tcp", "rdma"]) as network, refused(network, "tcp", 0):

        def work(comm: Communicator) -> set[str]:
            add_up(comm)
            return {decision.rail for decision in comm.why() if not decision.calls}

        assert network.run(work) == [{"tcp"}, {"tcp"}]
