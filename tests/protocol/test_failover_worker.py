# SPDX-License-Identifier: Apache-2.0
"""The ranks of the failover experiment. They compare every element of every call."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from protocol.jobs import StaticJob

from railweave.experiments.failover import worker
from railweave.experiments.failover.worker import COLLECTIVES, Series
from railweave.hosts.communicator import Communicator

RANKS, CALLS, COUNT = 3, 4, 3000


class Countdown:
    """Returns a stop signal after `calls` reads."""

    def __init__(self, calls: int) -> None:
        self.left = calls

    @property
    def received(self) -> bool:
        self.left -= 1
        return self.left <= 0


@pytest.mark.parametrize("spoilt", [0, 5])
@pytest.mark.parametrize("collective", COLLECTIVES)
def test_every_element_is_compared(collective: str, spoilt: int, monkeypatch: pytest.MonkeyPatch) -> None:
    call = getattr(Communicator, collective)
    told: list[dict[str, Any]] = []
    monkeypatch.setattr(worker, "emit", lambda event, **values: told.append({"event": event, **values}))

    def spoil(comm: Communicator, given: Any, *, out: Any) -> None:
        call(comm, given, out=out)
        out[COUNT // 2 : COUNT // 2 + spoilt] += 1

    monkeypatch.setattr(Communicator, collective, spoil)

    def work(comm: Communicator) -> None:
        series = Series(comm, collective, COUNT, "int32", 0.0)
        series.run(Countdown(CALLS), SimpleNamespace(received=False))  # type: ignore[arg-type]

    StaticJob(RANKS).run(work)
    for rank in range(RANKS):
        reports = [each for each in told if each["event"] == "calls" and each["rank"] == rank]
        assert sum(len(each["calls"]) for each in reports) == CALLS
        assert sum(each["wrong"] for each in reports) == CALLS * spoilt
        sizes = {size for each in reports for *_, slices in each["calls"] for *_, size in slices}
        assert sizes == {4 * COUNT}
