# SPDX-License-Identifier: Apache-2.0
"""The agents' counts explain all bytes that leave the interfaces, also if a rail fails during a job."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from railweave.experiments.accounting import RailAccount, account
from railweave.experiments.contenders import Contender, Job
from railweave.experiments.hosts import JobOptions, start_rank
from railweave.experiments.messages import RailCounts, read
from railweave.experiments.records import RankResult
from railweave.experiments.scenario import Workload
from railweave.topologies.lab import faults
from railweave.topologies.lab.faults import Fault
from railweave.topologies.lab.injection import Injection
from railweave.topologies.lab.lab import Lab
from railweave.topologies.lab.options import LabOptions
from railweave.topologies.model import Plane
from railweave.topologies.planes import planes
from railweave.topologies.values import plain

RANKS = 3
DEADLINE_S = 120.0
SIZE = 2 << 20
# Three equal sizes: one before the fault, one while it lasts, one after its repair.
WORKLOAD = Workload((SIZE, SIZE, SIZE), dtype="int32", warmup=0, iterations=4)


class Run:
    """One job in a lab of three planes. One plane fails during the job."""

    def __init__(self, lab: Lab, out: Path) -> None:
        self._lab = lab
        self._out = out
        self._begun: Counter[int] = Counter()  # sizes by rank
        self._results: list[RankResult] = []

    async def with_fault(self, fault: Fault) -> list[RailAccount]:
        """Run the job, and inject the fault when all ranks have completed the first size."""
        contender = Contender("all", "railweave")
        job = Job(contender, RANKS, (), {}, str(self._out), DEADLINE_S, plain(WORKLOAD))
        path = self._out / "job.json"
        path.write_text(json.dumps(plain(job)))
        for rank in range(RANKS):
            command = contender.implementation().command(path, rank)
            await start_rank(self._lab, JobOptions("books", command), rank)
        async with Injection(self._lab, fault) as injection:
            injected = repaired = False
            async for line in self._lab.events():
                message = read(line.text) or {"event": ""}
                self._begun[message.get("rank", 0)] += message["event"] == "begin"
                done = min(self._begun[rank] for rank in range(RANKS)) - 1
                if done == 1 and not injected:
                    injected = True
                    await injection.inject()
                if done == 2 and not repaired:
                    repaired = True
                    await injection.repair()
        assert injected
        assert repaired
        self._results = [RankResult.read(job.result_of(rank)) for rank in range(RANKS)]
        return self._accounts()

    @property
    def wrong(self) -> int:
        return sum(sample.wrong for result in self._results for sample in result.samples)

    def _accounts(self) -> list[RailAccount]:
        counts = {
            rank: {name: RailCounts(**values) for name, values in result.counters.items()}  # type: ignore[arg-type]
            for rank, result in enumerate(self._results)
        }
        used = self._lab.topology.planes
        interfaces = {plane.name: self._lab.interface_counters(plane.name) for plane in used}
        return account(used, counts, interfaces)


@pytest.mark.parametrize(
    ("victim", "fault"),
    [
        ("tcp", faults.switch_killed),
        ("rdma", lambda plane: faults.host_down(plane, "h2")),
        ("ina", faults.switch_frozen),
    ],
)
def test_the_books_balance_when_a_rail_fails(
    victim: str, fault: Callable[[Plane], Fault], tmp_path: Path
) -> None:
    topology = planes(RANKS, ("ina", "tcp", "rdma"), 50_000_000)

    async def check() -> tuple[list[RailAccount], int]:
        async with asyncio.timeout(DEADLINE_S), Lab(topology, LabOptions(tmp_path)) as lab:
            run = Run(lab, tmp_path)
            return await run.with_fault(fault(topology.plane(victim))), run.wrong

    accounts, wrong = asyncio.run(check())
    assert wrong == 0
    assert {rail.name for rail in accounts if rail.failures} >= {victim}
    for rail in accounts:
        assert rail.bytes_agree, rail
        assert rail.sent["heartbeats"] > 0
        assert rail.sent["control"] > 0
        # Each rank sends at least what it contributes.
        assert rail.sent["payload"] >= rail.payload_bytes
    assert sum(rail.sent["recovery"] for rail in accounts) > 0
