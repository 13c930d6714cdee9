# SPDX-License-Identifier: Apache-2.0
"""The RDMA rail on real interfaces: sums, counts, losses and failures."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from system.namespaces import dropping, inside, ip
from system.rdma_hosts import NIC, RAIL, SECRET, WAIT_S, Hosts, Job, bridged, job

from railweave._native.agent import Agent

RANKS = 4


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    with bridged(RANKS) as made:
        yield made


@pytest.fixture
def lossy(hosts: Hosts) -> Iterator[None]:
    """Drop 2 % of the packets (or super-packets) that the hosts send."""
    with dropping(hosts.switch, {f"port{rank}": "numgen random mod 100 < 2" for rank in range(RANKS)}):
        yield


def value(rank: int, count: int) -> np.ndarray:
    """Return whole numbers. Their sums are exact in any order."""
    return ((np.arange(count) + 7 * rank) % 1021).astype(np.float32)


def total(count: int) -> np.ndarray:
    return sum(value(rank, count) for rank in range(RANKS))  # type: ignore[return-value]


@pytest.mark.parametrize("count", [3, 4096, 1 << 20])
def test_sums_of_all_sizes(hosts: Hosts, count: int) -> None:
    """Each size runs three times, so that later sums meet the leftovers of earlier ones."""
    with job(hosts) as made:
        for _ in range(3):
            results = made.on_every_rank(lambda rank: made.all_reduce(rank, value(rank, count)))
            for result in results:
                np.testing.assert_array_equal(result, total(count))
        for agent in made.agents:
            assert agent.stats()[RAIL].malformed == 0


def test_the_interfaces_count_what_the_agents_count(hosts: Hosts) -> None:
    before = [hosts.bytes_sent(rank) for rank in range(RANKS)]
    made = Job(hosts)
    made.on_every_rank(lambda rank: made.all_reduce(rank, value(rank, 1 << 20)))
    made.close()
    for rank, agent in enumerate(made.agents):
        stats = agent.stats()[RAIL]
        assert hosts.bytes_sent(rank) - before[rank] == stats.bytes_sent
        # A ring sends each element 2(n-1)/n times. Overhead may add at most 12 %.
        payload = (1 << 22) * 2 * (RANKS - 1) // RANKS
        assert payload < stats.bytes_sent < payload * 1.12
        assert stats.payload_bytes == 1 << 22


@pytest.mark.usefixtures("lossy")
def test_lost_packets_cost_time_but_no_number(hosts: Hosts) -> None:
    with job(hosts) as made:
        for count in (64, 1 << 18, 1 << 20):
            results = made.on_every_rank(lambda rank, n=count: made.all_reduce(rank, value(rank, n)))  # type: ignore[misc]
            for result in results:
                np.testing.assert_array_equal(result, total(count))
        assert sum(agent.stats()[RAIL].retransmissions for agent in made.agents) > 0


def failure_after(made: Job, rank: int, op: int) -> str:
    assert made.agents[rank].wait(op, WAIT_S)
    failure = made.agents[rank].failure_of(op)
    assert failure is not None
    return failure.message


def test_a_rank_that_fails_tells_the_others_why(hosts: Hosts) -> None:
    """It tells them even during a transfer, and does not wait for the end of the transfer."""
    made = Job(hosts)
    x = value(0, 1 << 20)
    ops = {rank: made.submit(rank, x) for rank in range(1, RANKS)}  # rank 0 does not call
    made.agents[1].close(1.0)  # with a call unfinished
    for rank in (2, 3):
        assert "rank 1 has closed its communicator with 1 calls unfinished" in failure_after(
            made, rank, ops[rank]
        )
    made.close()


def test_a_rank_that_has_left_is_missed_by_those_that_need_it(hosts: Hosts) -> None:
    made = Job(hosts)
    made.agents[0].close(0.5)
    x = value(0, 1 << 20)
    ops = {rank: made.submit(rank, x) for rank in (1, 3)}  # rank 0's neighbours in the ring
    for rank, op in ops.items():
        assert "rank 0 at 10.3.0.1 has closed its communicator" in failure_after(made, rank, op)
    made.close()


@pytest.mark.parametrize(
    ("interface", "address", "message"),
    [
        ("nic9", "10.3.0.1", "network interface 'nic9': No such device"),
        (NIC, "10.3.0.77", "UDP port 4791 at 10.3.0.77 on 'eth0': is that the interface's address"),
        (NIC, "host", "'host' is not an IPv4 address"),
    ],
)
def test_what_cannot_be_opened_is_named(hosts: Hosts, interface: str, address: str, message: str) -> None:
    with inside(hosts.namespaces[0]), pytest.raises((OSError, ValueError, RuntimeError), match=message):
        Agent(0, 2).add_rdma("rdma", address, interface)


def test_an_mtu_that_is_too_small_is_named(hosts: Hosts) -> None:
    with inside(hosts.namespaces[0]):
        ip("link", "set", NIC, "mtu", "1000")
        try:
            with pytest.raises(
                RuntimeError, match=r"interface 'eth0' has an MTU of 1000: expected 1088 or more"
            ):
                Agent(0, 2).add_rdma("rdma", hosts.address(0), NIC)
        finally:
            ip("link", "set", NIC, "mtu", "1500")


def test_members_that_do_not_fit_are_named(hosts: Hosts) -> None:
    agent = Agent(0, 2)
    agent.set_secret(SECRET)
    with inside(hosts.namespaces[0]):
        agent.add_rdma("rdma", hosts.address(0), NIC)
    good = (hosts.address(1), hosts.mac(1), [500, 0])
    for members, message in (
        ([good], "1 members for a world of 2"),
        ([good, (hosts.address(1), hosts.mac(1), [500])], "offers 1 queue pairs to a world of 2"),
        ([good, (hosts.address(1), "02:00", [500, 0])], "'02:00' is not a MAC address"),
        ([good, ("10.3.0", hosts.mac(1), [500, 0])], "'10.3.0' is not an IPv4 address"),
        ([good, (hosts.address(1), hosts.mac(1), [1, 0])], "offers queue pair 1: expected 256 to"),
    ):
        with pytest.raises(ValueError, match=message):
            agent.connect_rdma(0, members)
