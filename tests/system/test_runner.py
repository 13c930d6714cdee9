# SPDX-License-Identifier: Apache-2.0
"""Scenarios in labs: interleaved rounds, interrupted and resumed, and a contender that hangs."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

from railweave.experiments.contenders import Contender
from railweave.experiments.runner import Runner
from railweave.experiments.scenario import Scenario, Workload

STRIPED = Contender("ina+tcp", "railweave")
RING = Contender("ring", "ring", ("tcp",))


def test_an_interrupted_scenario_goes_on_where_it_was(tmp_path: Path) -> None:
    workload = Workload((4096, 262_144), warmup=3, iterations=5)
    scenario = Scenario("small", (STRIPED, RING), workload, hosts=2, repetitions=2, control=True, noise=0.05)

    async def interrupted() -> None:
        task = asyncio.create_task(Runner(scenario, tmp_path, on_record=lambda _: task.cancel()).run())
        with contextlib.suppress(asyncio.CancelledError):
            await task

    asyncio.run(interrupted())
    runner = Runner(scenario, tmp_path, on_record=(seen := []).append)  # type: ignore[var-annotated]
    assert len(runner.records.read()) == 1
    records = asyncio.run(runner.run())
    assert [(record.round, record.contender) for record in records] == [
        (0, "ina+tcp"), (0, "ring"), (1, "ina+tcp"), (1, "ring")
    ]  # fmt: skip
    assert len(seen) == 5
    assert len(runner.records.read()) == 6  # with the control runs
    for record in records:
        assert (record.status, record.error, record.wrong, record.hot) == ("ok", "", 0, True)
        assert [sample.size_bytes for sample in record.samples] == [4096, 262_144]
        assert all(len(s.times_us) == 5 and s.verified == 10 for s in record.samples)
        assert record.counters["tcp"]["wire_bytes"] > 0
        assert Scenario.from_json(record.configuration) == scenario
    assert sum(records[0].shares["262144"].values()) == 1
    assert records[0].counters["ina"]["payload_bytes"] > 0
    assert asyncio.run(Runner(scenario, tmp_path, on_phase=lambda _: None).run()) == records


def test_a_contender_that_hangs_is_marked_and_the_others_go_on(tmp_path: Path) -> None:
    scenario = Scenario(
        "cut",
        (RING, STRIPED),
        Workload((65_536,), iterations=10**9, seconds=2.0),
        hosts=2,
        repetitions=1,
        faults="500ms: switch port down h1 tcp",
    )
    hung, went_on = asyncio.run(Runner(scenario, tmp_path, silence_s=20.0).run())
    assert (hung.contender, hung.status) == ("ring", "hung")
    assert "nothing was heard of it for 20 s" in hung.error
    assert (went_on.status, went_on.error, went_on.wrong) == ("ok", "", 0)
    ((at_s, fault),) = went_on.extra["events"]
    assert fault == "switch port down h1 tcp"
    assert 0.4 < at_s < 1.9
    series = went_on.extra["series"]
    before, after = int(at_s / went_on.extra["bin_s"]), len(series["ina"])
    assert sum(series["tcp"][:before]) > 0
    assert sum(series["ina"][before:after]) > 0


def test_a_contender_that_fails_is_marked_with_its_last_words(tmp_path: Path) -> None:
    only = Contender("ina", "railweave", ("ina",))
    workload = Workload((65_536,), iterations=10**9, seconds=2.0)
    faults = "200ms: switch killed s-ina"
    scenario = Scenario("killed", (only, RING), workload, hosts=2, repetitions=1, faults=faults)
    failed, went_on = asyncio.run(Runner(scenario, tmp_path).run())
    assert failed.status == "failed"
    assert "RailDown" in failed.error
    assert (went_on.status, went_on.wrong) == ("ok", 0)
