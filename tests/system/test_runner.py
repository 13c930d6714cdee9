# SPDX-License-Identifier: Apache-2.0
"""Scenarios in labs: interrupted and resumed, with faults, and with a contender that hangs."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from pathlib import Path
from types import ModuleType

import pytest

from railweave.experiments import contenders as kinds
from railweave.experiments.contenders import Contender, Endpoint, Implementation, Job
from railweave.experiments.problem import SCALES
from railweave.experiments.runner import Runner
from railweave.experiments.scenario import Scenario, Workload

STRIPED = Contender("ina+tcp", "railweave")
RING = Contender("ring", "ring", ("tcp",))


def test_an_interrupted_scenario_goes_on_where_it_was(tmp_path: Path) -> None:
    workload = Workload((4096, 262_144), warmup=3, iterations=5)
    scenario = Scenario("small", (STRIPED, RING), workload, hosts=2, repetitions=1, control=True, noise=0.05)

    async def interrupted() -> None:
        task = asyncio.create_task(Runner(scenario, tmp_path, on_record=lambda _: task.cancel()).run())
        with contextlib.suppress(asyncio.CancelledError):
            await task

    asyncio.run(interrupted())
    runner = Runner(scenario, tmp_path, on_record=(seen := []).append)  # type: ignore[var-annotated]
    assert len(runner.records.read()) == 1
    records = asyncio.run(runner.run())
    assert [(record.round, record.contender) for record in records] == [(0, "ina+tcp"), (0, "ring")]
    assert len(seen) == len(runner.records.read()) - 1 > 1  # with the control runs
    for record in records:
        assert (record.status, record.error, record.wrong) == ("ok", "", 0)
        assert record.hot == all(sample.hot for sample in record.samples)  # a busy machine may not be hot
        assert [sample.size_bytes for sample in record.samples] == [4096, 262_144]
        assert all(len(s.times_us) == 5 and s.verified == 2 * SCALES for s in record.samples)
        assert record.counters["tcp"]["wire_bytes"] > 0
        assert Scenario.from_json(record.configuration) == scenario
    assert sum(records[0].shares["262144"].values()) == 1
    assert records[0].counters["ina"]["payload_bytes"] > 0
    assert asyncio.run(Runner(scenario, tmp_path, on_phase=lambda _: None).run()) == records


class Stuck(Implementation):
    """A contender whose ranks never send a message."""

    def command(self, job_file: Path, rank: int) -> list[str]:
        return ["sleep", "600"]

    def connect(self, job: Job, rank: int) -> Endpoint:
        raise NotImplementedError


def test_contenders_that_hang_or_fail_are_marked_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = ModuleType("stuck")
    module.Kind = Stuck  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "railweave.experiments.contenders.stuck", module)
    monkeypatch.setattr(kinds, "KINDS", ("stuck", "railweave", "ring"))
    wrong = Contender("wrong", "railweave", ("tcp",), {"shares": {"rdma": 1.0}})
    contenders = (Contender("stuck", "stuck"), wrong, RING)
    workload = Workload((65_536,), iterations=3)
    scenario = Scenario("bad", contenders, workload, hosts=2, rails=("tcp",), repetitions=1)
    hung, failed, went_on = asyncio.run(Runner(scenario, tmp_path, silence_s=5.0).run())
    assert (hung.contender, hung.status) == ("stuck", "hung")
    assert "no message for 5 s" in hung.error
    assert failed.status == "failed"
    assert "InvalidOption: " in failed.error
    assert (went_on.status, went_on.error, went_on.wrong) == ("ok", "", 0)


def test_a_fault_comes_at_its_time_and_is_in_the_record(tmp_path: Path) -> None:
    workload = Workload((65_536,), iterations=10**9, seconds=2.0)
    faults = "500ms: switch port down h1 tcp"
    scenario = Scenario("cut", (STRIPED,), workload, hosts=2, repetitions=1, faults=faults)
    (went_on,) = asyncio.run(Runner(scenario, tmp_path).run())
    assert (went_on.status, went_on.error, went_on.wrong) == ("ok", "", 0)
    ((at_s, fault),) = went_on.extra["events"]
    assert fault == "switch port down h1 tcp"
    assert at_s >= 0.5
    series = went_on.extra["series"]
    before, after = int(at_s / went_on.extra["bin_s"]), len(series["ina"])
    assert sum(series["tcp"][:before]) > 0
    assert sum(series["ina"][before:after]) > 0


def test_baselines_of_mixed_fabrics_sum_and_leave_the_switches_to_us(tmp_path: Path) -> None:
    """ATP runs before railweave. The controller must have its switches back afterwards.

    One rack aggregates. The ring has its sum and two ranks as members.
    """
    contenders = [
        Contender("ps", "ps"),
        Contender("hierarchical", "hierarchical", options={"racks": 2}),
        Contender("atp", "atp", options={"slots": 4}),
        Contender("ina", "railweave"),
    ]
    workload = Workload((4096, 262_144), warmup=0, iterations=3)
    scenario = Scenario(
        *("mixed", tuple(contenders), workload, "racks:racks=2,hosts=2,ina=1"),
        rails=("ina",),
        repetitions=1,
    )
    records = asyncio.run(Runner(scenario, tmp_path).run())
    for record in records:
        assert (record.status, record.error, record.wrong) == ("ok", "", 0)
    counted = records[2].extra
    assert counted["sum"] + counted["collision"] + counted.get("alone", 0) + counted.get("drain", 0) > 0
    assert counted["result"] > 0
    assert records[3].counters["ina"]["ring_messages"] == 4 * records[3].counters["ina"]["rings"]
