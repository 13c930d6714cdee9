# SPDX-License-Identifier: Apache-2.0
"""The native rail of an endpoint. The test is the endpoints of two ranks."""

from __future__ import annotations

import select
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from protocol.recovering import DEADLINE_S, Job, Rank

from railweave._native.agent import Agent, Call, EndpointWork, FailureKind
from railweave._native.collectives import DType, ReduceOp

TCP, ALG, COUNT = 0, 1, 1000
SUM = Call(DType.INT32, ReduceOp.SUM, COUNT)
TRIAL_ELEMENTS = 16 * 1024


class Endpoint:
    """A rank's side of the rail, with its next work."""

    def __init__(self, agent: Agent, rail: int = ALG) -> None:
        self.rail = agent.endpoint(rail)
        self._work: deque[tuple[Any, ...]] = deque()

    def next(self, kind: EndpointWork) -> tuple[Any, ...]:
        """Wait for the next work, which must be of this kind. Return its other fields."""
        while not self._work:
            assert select.select([self.rail.work_descriptor()], [], [], DEADLINE_S)[0]
            self._work.extend(self.rail.take())
        found, *rest = self._work.popleft()
        assert found is kind
        return tuple(rest)

    def call(self, incarnation: int) -> NDArray[np.int32]:
        """Wait for a call in this incarnation. Return its input."""
        of, dtype, op, data, _ = self.next(EndpointWork.CALL)
        assert (of, dtype, op) == (incarnation, DType.INT32, ReduceOp.SUM)
        return np.frombuffer(data, np.int32)


class PairCall:
    """A call of both ranks on the rail."""

    def __init__(self, ranks: list[Rank], value: int) -> None:
        self.ranks = ranks
        self.given = [np.arange(COUNT, dtype=np.int32) * (rank + value) for rank in range(2)]
        self.out = [np.zeros(COUNT, np.int32) for _ in ranks]
        parts = [(ALG, 0, COUNT)]
        self.ops = [
            rank.submit_at(parts, SUM, x, out)
            for rank, x, out in zip(ranks, self.given, self.out, strict=True)
        ]

    def is_right(self) -> None:
        for rank, op, out in zip(self.ranks, self.ops, self.out, strict=True):
            rank.wait(op)
            np.testing.assert_array_equal(out, sum(self.given))


@contextmanager
def pair() -> Iterator[tuple[list[Rank], list[Endpoint]]]:
    with Job(2, 1, recovers=False) as job:
        for rank in job.ranks:
            assert rank.agent.add_algorithm("alg", "127.0.0.1", "lo") == ALG
            rank.control.append(rank.agent.open_control(ALG))
            rank.rails = 2
        job.enable_recovery()
        yield job.ranks, [Endpoint(rank.agent) for rank in job.ranks]


def until_alive(ranks: list[Rank], rails: list[int]) -> None:
    for rank in ranks:
        rank.until(lambda rank=rank: rank.alive(1 << 30) == rails)  # type: ignore[misc]


def restart(endpoints: list[Endpoint], incarnation: int) -> list[int]:
    """Wait for a restart on both ranks. Return the positions."""
    found = [endpoint.next(EndpointWork.RESTART) for endpoint in endpoints]
    assert [each[0] for each in found] == [incarnation] * 2
    return [each[-1] for each in found]


def test_a_restart_follows_the_greatest_position_and_drops_what_is_old() -> None:
    with pair() as (ranks, endpoints):
        first, second = endpoints
        call = PairCall(ranks, 1)
        for endpoint, given, position in zip(endpoints, call.given, (7, 3), strict=True):
            np.testing.assert_array_equal(endpoint.call(0), given)
            assert endpoint.rail.reserve(0, position)
        assert second.rail.reserve(0, 2)  # positions never decrease
        second.rail.fail(0, "it is tested")
        call.is_right()  # over the other rail
        until_alive(ranks, [TCP])
        assert ranks[0].agent.rail_states()[ALG].last_failure == "rank 1: it is tested"
        for endpoint in endpoints:
            assert endpoint.next(EndpointWork.HALT)[0] == 0
            assert not endpoint.rail.reserve(0, 100)
        first.rail.finish(0, np.full(COUNT, -1, np.int32))
        second.rail.fail(0, "this is late")
        assert restart(endpoints, 1) == [7, 7]
        trials = [endpoint.call(1) for endpoint in endpoints]
        assert [trial.size for trial in trials] == [TRIAL_ELEMENTS] * 2
        for endpoint in endpoints:
            endpoint.rail.finish(0, np.zeros(TRIAL_ELEMENTS, np.int32))
            assert endpoint.rail.reserve(1, 8)
            endpoint.rail.finish(1, sum(trials))  # type: ignore[arg-type]
        until_alive(ranks, [TCP, ALG])
        call.is_right()
        again = PairCall(ranks, 2)
        for endpoint in endpoints:
            endpoint.call(1)
            endpoint.rail.fail(0, "this is late")
            endpoint.rail.finish(0, np.full(COUNT, -1, np.int32))
            endpoint.rail.finish(1, sum(again.given))  # type: ignore[arg-type]
        again.is_right()
        assert [rank.agent.rail_states()[ALG].failures for rank in ranks] == [1, 1]


def test_a_trial_with_a_wrong_result_is_repeated() -> None:
    with pair() as (ranks, endpoints):
        ranks[0].agent.suspect(ALG, "it is tested")
        for endpoint in endpoints:
            assert endpoint.next(EndpointWork.HALT)[0] == 0
        for incarnation in (1, 2):
            assert restart(endpoints, incarnation) == [0, 0]  # nothing was sent
            trials = [endpoint.call(incarnation) for endpoint in endpoints]
            for endpoint in endpoints:
                endpoint.rail.finish(incarnation, sum(trials) + (incarnation == 1))  # type: ignore[arg-type]
            if incarnation == 1:
                for endpoint in endpoints:
                    assert endpoint.next(EndpointWork.HALT)[0] == 1
        until_alive(ranks, [TCP, ALG])


def test_an_endpoint_without_positions_gets_one_after_its_first_packet() -> None:
    with pair() as (ranks, endpoints):
        assert endpoints[1].rail.reserve(0, 0)
        endpoints[1].rail.fail(0, "it is tested")
        for endpoint in endpoints:
            assert endpoint.next(EndpointWork.HALT)[0] == 0
        assert restart(endpoints, 1) == [1, 1]
        until_alive(ranks, [TCP])


def test_a_result_of_another_size_excludes_the_rail() -> None:
    with pair() as (ranks, endpoints):
        call = PairCall(ranks, 1)
        endpoints[1].call(0)
        endpoints[1].rail.finish(0, np.zeros(COUNT + 1, np.int32))
        call.is_right()
        reason = "rank 1: its endpoint returned 4004 bytes: expected 4000"
        assert ranks[0].agent.rail_states()[ALG].last_failure == reason


def test_the_thread_is_told_of_the_end_and_may_outlive_it() -> None:
    agent = Agent(0, 2)
    rail = agent.add_algorithm("alg", "127.0.0.1", "lo")
    endpoint = Endpoint(agent, rail)
    x, out = np.ones(COUNT, np.int32), np.zeros(COUNT, np.int32)
    point = op, _ = agent.plan_point(DEADLINE_S)
    assert agent.submit(point, SUM, x, out, [(rail, 0, COUNT)])
    endpoint.call(0)
    agent.close(0)
    failure = agent.failure_of(op)
    assert failure is not None
    assert failure.kind is FailureKind.PEER_LOST
    assert endpoint.next(EndpointWork.HALT)[0] == 0
    del agent
    assert not endpoint.rail.reserve(0, 1)
    endpoint.rail.count(1, 100, 0, 0, 1, 100)
    endpoint.rail.finish(0, x)
    endpoint.rail.fail(0, "this is late")
    assert (out == 0).all()


def test_another_rail_has_no_endpoint() -> None:
    agent = Agent(0, 2)
    rail, _ = agent.add_tcp("tcp", "127.0.0.1", "lo")
    with pytest.raises(IndexError):
        agent.endpoint(rail)
    agent.close(0)
