# SPDX-License-Identifier: Apache-2.0
"""What leaves the interfaces is explained by the agents' counts, also when a rail fails in the middle."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from railweave.experiments.accounting import RailAccount, account
from railweave.experiments.allreduce.loop import Measurement
from railweave.experiments.hosts import JobOptions, module_command, start_job
from railweave.experiments.messages import RailCounts, read
from railweave.topologies.lab import faults
from railweave.topologies.lab.faults import Fault
from railweave.topologies.lab.injection import Injection
from railweave.topologies.lab.lab import Lab
from railweave.topologies.lab.options import LabOptions
from railweave.topologies.model import Plane
from railweave.topologies.planes import planes

RANKS = 3
DEADLINE_S = 120.0
SIZE = 2 << 20
# Of equal sizes one after the other: before the fault, while it lasts, after its repair.
MEASUREMENT = Measurement((SIZE, SIZE, SIZE), "int32", "sum", iters=4, warmup=0, check=True)
WORKER = "railweave.experiments.allreduce.worker"


class Run:
    """One job in a lab of three planes, one of which fails in the middle."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._rows: Counter[int] = Counter()  # by rank
        self._done: dict[int, dict[str, Any]] = {}
        self.wrong = 0

    async def with_fault(self, fault: Fault) -> list[RailAccount]:
        """Run the job, and inject the fault as soon as all ranks have completed the first size."""
        await start_job(self._lab, JobOptions("books", module_command(WORKER, *MEASUREMENT.arguments())))
        async with Injection(self._lab, fault) as injection:
            injected = repaired = False
            async for line in self._lab.events():
                self._take(read(line.text) or {"event": ""})
                done = min(self._rows[rank] for rank in range(RANKS))
                if done == 1 and not injected:
                    injected = True
                    await injection.inject()
                if done == 2 and not repaired:
                    repaired = True
                    await injection.repair()
        assert injected
        assert repaired
        return self._accounts()

    def _take(self, message: dict[str, Any]) -> None:
        match message["event"]:
            case "row":
                self._rows[message["rank"]] += 1
                self.wrong += message["wrong"]
            case "done":
                self._done[message["rank"]] = message["rails"]

    def _accounts(self) -> list[RailAccount]:
        counts = {
            rank: {name: RailCounts(**values) for name, values in rails.items()}
            for rank, rails in self._done.items()
        }
        used = self._lab.topology.planes
        interfaces = {plane.name: self._lab.interface_counters(plane.name) for plane in used}
        return account(used, counts, interfaces, {}, {})


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
            run = Run(lab)
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
