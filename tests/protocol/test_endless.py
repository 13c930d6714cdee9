# SPDX-License-Identifier: Apache-2.0
"""The ranks of an endless job compare every element of every call, and end after the same call."""

from __future__ import annotations

from typing import Any

import pytest
from protocol.jobs import StaticJob

from railweave.experiments import endless
from railweave.experiments.endless import AGREE_EVERY, COMPUTE, STOP, Calls, Series
from railweave.experiments.failover.values import COLLECTIVES
from railweave.experiments.random_calls import draw
from railweave.hosts.communicator import Communicator

RANKS, COUNT = 3, 3000


class Signals(set[int]):
    """Received signals. The signal to stop comes between the first and the second look."""

    looks = 0

    def __contains__(self, number: object) -> bool:
        self.looks += number == STOP
        return super().__contains__(number) or (number == STOP and self.looks > 1)


def told_by(calls: Calls, monkeypatch: pytest.MonkeyPatch, *received: int) -> list[dict[str, Any]]:
    """Run the ranks to their end, and return their messages."""
    told: list[dict[str, Any]] = []
    monkeypatch.setattr(endless, "emit", lambda event, **values: told.append({"event": event, **values}))
    StaticJob(RANKS).run(lambda comm: Series(comm, calls, Signals(received)).run())
    return told


@pytest.mark.parametrize("spoilt", [0, 5])
@pytest.mark.parametrize("collective", COLLECTIVES)
def test_every_element_is_compared(collective: str, spoilt: int, monkeypatch: pytest.MonkeyPatch) -> None:
    call = getattr(Communicator, collective)

    def spoil(comm: Communicator, given: Any, *, out: Any = None, op: str = "sum") -> Any:
        result = call(comm, given, out=out) if out is not None else call(comm, given, op)
        if result.size > 1:  # it is not a call of the series itself
            result[COUNT // 2 : COUNT // 2 + spoilt] += 1
        return result

    monkeypatch.setattr(Communicator, collective, spoil)
    told = told_by(Calls(collective, 4 * COUNT), monkeypatch)
    made = set()
    for rank in range(RANKS):
        mine = [each for each in told if each["rank"] == rank]
        calls = [call for each in mine if each["event"] == "calls" for call in each["calls"]]
        made.add(len(calls))
        assert [number for number, *_ in calls] == list(range(len(calls)))
        assert sum(each["elements"] for each in mine if each["event"] == "wrong") == len(calls) * spoilt
        assert {size for *_, slices in calls for _, _, _, size, _ in slices} == {4 * COUNT}
    assert len(made) == 1


def test_random_calls_are_right_and_end_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[list[str]] = [[] for _ in range(RANKS)]
    end = Series._end

    def note(series: Series) -> None:
        ended[series._comm.rank].append(series.waiting()[0])
        end(series)

    monkeypatch.setattr(Series, "_end", note)
    told = told_by(Calls(seed=3, largest=5000, compute_s=0.0, least_s=60.0), monkeypatch, COMPUTE)
    (seed,) = {each["seed"] for each in told if each["event"] == "joined"}
    calls = [str(draw(seed, number, RANKS, 5000)) for number in range(AGREE_EVERY)]
    assert ended == [calls] * RANKS
    assert {each["event"] for each in told} >= {"calls", "computed", "left"}
    assert not any(each["event"] == "wrong" for each in told)
    reports = [each for each in told if each["event"] == "calls"]
    assert sum(each["done"] for each in reports) == RANKS * AGREE_EVERY
    assert not any(each["calls"] for each in reports)  # none was long
