# SPDX-License-Identifier: Apache-2.0
"""Ranks that are connected with only some of the others. All ranks learn of a failure that one rank finds."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from protocol.jobs import StaticJob, StaticMembership
from protocol.loopback_switch import ADDRESS, PLACE, LoopbackSwitch
from protocol.tcp_greetings import hello, shake_hands, tcp_key
from protocol.test_tcp_peer import DEADLINE_S, SECRET

from railweave._native.agent import Agent, FailureKind
from railweave.hosts.errors import InvalidOption, RailweaveError

RANKS = 16
LAST = RANKS - 1
CONNECTED = sorted({(LAST + sign * (1 << step)) % RANKS for sign in (1, -1) for step in range(4)})
RAILS = ["tcp=tcp@lo", "ina=ina@lo"]
NOBODY = 1  # a port without a listener


@pytest.fixture
def job() -> Iterator[StaticJob]:
    switch = LoopbackSwitch(ADDRESS, RANKS)
    yield StaticJob(RANKS, ina=[PLACE])
    switch.close()


@pytest.mark.parametrize("rails", RAILS)
def test_a_call_that_differs_is_described_to_all(job: StaticJob, rails: str) -> None:
    job.differ(LAST, 100, rails)


@pytest.mark.parametrize("rails", RAILS)
def test_a_rank_that_leaves_is_named_by_all(job: StaticJob, rails: str) -> None:
    job.leave(LAST, 100, rails)


@pytest.mark.parametrize("kinds", [["tcp"], ["ina"], ["tcp", "tcp"]])
def test_a_rank_that_dies_is_named_by_all(kinds: list[str]) -> None:
    """Only ranks that are connected with a dead rank see its connections end. The rank sends no message.

    With two rails the ranks recover. Then only the dead rank's predecessor finds the death.
    """
    agents = [Agent(rank, RANKS) for rank in range(LAST)]
    control: list[list[tuple[str, int]]] = []
    with contextlib.ExitStack() as stack, ThreadPoolExecutor(LAST) as pool:
        for agent in agents:
            stack.callback(agent.close, 0)
            agent.set_secret(SECRET)
        with contextlib.ExitStack() as process:
            for rail, kind in enumerate(kinds):
                ports = [
                    getattr(agent, f"add_{kind}")(f"rail{rail}", "127.0.0.1", "lo")[1] for agent in agents
                ]
                places = [("127.0.0.1", port) for port in [*ports, NOBODY]]
                if len(kinds) > 1:
                    ports = [agent.open_control(rail) for agent in agents]
                    control.append([("127.0.0.1", port) for port in [*ports, NOBODY]])
                joined = [pool.submit(agent.connect_tcp, rail, places, DEADLINE_S) for agent in agents]
                for rank in CONNECTED:
                    connection = process.enter_context(socket.create_connection(places[rank], DEADLINE_S))
                    key = tcp_key(SECRET, rail)
                    connection.sendall(greeting := hello(key, LAST, rank, size=RANKS))
                    shake_hands(connection, key, greeting)
                assert [missing.result(DEADLINE_S) for missing in joined] == [[]] * LAST
        for agent in agents if control else []:
            agent.enable_recovery(control, [0] * len(kinds), 5.0, 1 << 20)
        for agent in agents:
            agent.wait_change(0, DEADLINE_S)
            failure = agent.failure()
            assert failure is not None
            assert (failure.kind, failure.rank) == (FailureKind.PEER_LOST, LAST)


class WithoutTheLast(StaticJob):
    """The last rank joins the job, but not its rails."""

    def join(self, controller: str, *, rank: int, **asked: Any) -> StaticMembership:
        membership = super().join(controller, rank=rank, **asked)
        if rank == LAST:
            raise InvalidOption("nothing but the job")
        return membership


def test_a_rank_that_does_not_come_is_named_by_all() -> None:
    job = WithoutTheLast(RANKS)

    def work(rank: int) -> str:
        with pytest.raises(RailweaveError) as raised, job.communicator(rank, timeout_s=2) as comm:
            comm.all_reduce(np.zeros(3, np.float32))
        return str(raised.value)

    with ThreadPoolExecutor(RANKS) as pool:
        *messages, last = pool.map(work, range(RANKS), timeout=DEADLINE_S)
    assert last == "nothing but the job"
    for message in messages:
        assert f"no connection with rank {LAST} after" in message
