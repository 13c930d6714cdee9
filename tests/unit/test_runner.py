# SPDX-License-Identifier: Apache-2.0
"""The runner without a lab: skipped and refused runs, and the record from the ranks' results."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from railweave.errors import Unavailable
from railweave.experiments.contenders import Contender, Endpoint, Implementation, Job, gloo
from railweave.experiments.cpu import CpuTimes, cpu_times, runnable
from railweave.experiments.errors import OptionError
from railweave.experiments.joining import Outcome, bottleneck, joined
from railweave.experiments.records import Cpu, RankResult, Record, Sample, failures
from railweave.experiments.runner import Run, Runner, require_room
from railweave.experiments.scenario import Scenario, Workload
from railweave.topologies.lab.counters import InterfaceCounters
from railweave.topologies.lab.lab import Lab
from railweave.topologies.lab.options import LabOptions

GLOO = Contender("gloo", "gloo", ("tcp",))
SCENARIO = Scenario("small", (GLOO,), Workload((1 << 20,)))
RUN = Record("key", "small", "tcp", "ring", 0, "ok")
JOB = Job(GLOO, 2, ("tcp", "ina", "rdma"), {}, "", 1.0, {}, series=True)


def result(
    times: tuple[float, ...], starts: tuple[float, ...], carried: dict[str, int], bins: list[int]
) -> RankResult:
    sample = Sample(1 << 20, times, len(times), 0, cpu_s=0.5, starts_s=starts)
    return RankResult(
        (sample,), {"1048576": carried}, {"tcp": {"slices": 2}}, {"torch": "2"},
        {"bin_s": 0.01, "series": {"tcp": bins}}, CpuTimes(10.0, 4.0, 1.0, 2.0), starts[0] - 1.0,
    )  # fmt: skip


def record_of(median_us: float, idle: float = 0.5, size: int = 1 << 20) -> Record:
    return replace(RUN, samples=(Sample(size, (median_us,), 1, 0),), cpu=Cpu(1, idle, 0, 1, 2))


def test_a_contender_that_a_machine_lacks_is_named_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)  # Python's mark for a module that cannot be imported
    for _ in range(2):
        (skipped,) = asyncio.run(Runner(SCENARIO, tmp_path).run())
        assert (skipped.contender, skipped.status) == ("gloo", "skipped")
        assert "make baseline" in skipped.error


class QuietLab(Lab):
    """A lab without a network and without processes."""

    def interface_counters(self, plane: str) -> dict[str, InterfaceCounters]:
        return {}


class Failing(Implementation):
    """A contender that starts no process, counts something, and fails at the end."""

    @contextlib.asynccontextmanager
    async def on_lab(self, lab: Lab, job: Job) -> AsyncIterator[dict[str, Any]]:
        extra: dict[str, Any] = {}
        yield extra
        extra["subflows"] = 1
        raise OSError("a path was not used")

    def command(self, job_file: Path, rank: int) -> list[str]:
        return []

    def connect(self, job: Job, rank: int) -> Endpoint:
        raise NotImplementedError


def test_what_a_failed_run_has_counted_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gloo, "Kind", Failing)
    lab = QuietLab(SCENARIO.network, LabOptions(tmp_path))
    runner, run = Runner(SCENARIO, tmp_path), Run(GLOO, 0)
    record, whole = asyncio.run(runner._run_one(lab, run, runner._job(lab, run, SCENARIO)))
    assert (record.status, record.error, record.extra) == ("failed", "a path was not used", {"subflows": 1})
    assert whole


def test_runs_that_failed_are_left_to_do_and_those_that_succeeded_are_not(tmp_path: Path) -> None:
    scenario = replace(SCENARIO, contenders=(Contender("ring", "ring", ("tcp",)),), repetitions=4)
    runner = Runner(scenario, tmp_path)
    for number, status in enumerate(("ok", "failed", "hung")):
        runner._keep(runner._record(Run(scenario.contenders[0], number), status, "an error"))
    assert [run.round for run in runner._todo()] == [1, 2, 3]
    assert failures(runner.records.read()) == [
        f"small: ring, round {number + 1} {status}: an error"
        for number, status in ((1, "failed"), (2, "hung"))
    ]
    runner._keep(runner._record(Run(scenario.contenders[0], 1), "ok", ""))
    assert [record.status for record in runner.records.of(scenario.key)] == ["ok", "hung", "ok"]


def test_what_does_not_fit_into_memory_is_said_before_it_starts() -> None:
    require_room(SCENARIO)
    too_many = replace(SCENARIO, hosts=199, rails=("tcp",), workload=Workload((1 << 30,)))
    with pytest.raises(
        Unavailable,
        match=r"scenario 'small': 199 hosts with tensors of 1024 MiB: expected about .* are free",
    ):
        require_room(too_many)


def test_a_call_lasts_from_its_last_start_to_its_last_end() -> None:
    one = result((50.0, 40.0), (7.0, 7.000060), {"tcp": 30}, [1, 2])  # it waits for the other rank
    other = result((20.0, 30.0), (7.000031, 7.000055), {"tcp": 10, "ina": 20}, [4])
    results = [one, other]
    wires = {"tcp": Counter(wire_bytes=100, dropped=0)}
    record = joined(RUN, Outcome(JOB, results, {"subflows": 2}, [(0.5, "link down")], wires))
    (sample,) = record.samples
    assert sample.times_us == (20.0, 40.0)
    assert (sample.verified, sample.cpu_s, sample.starts_s) == (4, 1.0, (1.000031, 1.00006))
    assert record.shares == {"1048576": pytest.approx({"tcp": 2 / 3, "ina": 1 / 3, "rdma": 0})}
    assert record.counters == {"tcp": {"wire_bytes": 100, "dropped": 0, "slices": 4}}
    assert record.extra["events"] == [[0.5, "link down"]]
    assert record.extra["series"] == {"tcp": [5, 2]}
    assert record.extra["subflows"] == 2
    assert record.versions == {"torch": "2"}
    assert record.cpu is not None
    assert (record.cpu.idle, record.cpu.stolen) == (0.4, 0.1)
    assert record.cpu.cpu_s_per_gb["hosts"] == pytest.approx(0.5 / (2 * (1 << 20) / 1e9))


def test_ranks_that_measured_different_calls_are_no_run() -> None:
    with pytest.raises(OptionError, match="different calls"):
        joined(RUN, Outcome(JOB, [result(times, times, {}, []) for times in ((1.0,), (1.0, 2.0))]))


def test_a_rank_that_does_not_say_when_calls_began_is_named_as_such() -> None:
    whole = result((1.0,), (7.0,), {}, [])
    lacking = replace(whole, samples=(replace(whole.samples[0], starts_s=()),))
    with pytest.raises(
        OptionError, match="a rank's result has no starts_s: expected the start of each call, by"
    ):
        joined(RUN, Outcome(JOB, [whole, lacking]))


def test_the_bottleneck_is_judged_by_idle_cores_and_half_the_rate() -> None:
    assert bottleneck(record_of(100), None) == "unknown"
    assert bottleneck(record_of(100, idle=0.01), record_of(200)) == "cpu"
    assert bottleneck(record_of(100), record_of(195)) == "links"
    assert bottleneck(record_of(100), record_of(120)) == "cpu"
    assert bottleneck(record_of(100, size=4096), record_of(120, size=4096)) == "unknown"


def test_processors_are_counted() -> None:
    before = cpu_times({})
    total = sum(i * i for i in range(300_000))
    spent = cpu_times({"this": 10**9}) - before
    assert total
    assert 0 <= spent.idle_s <= spent.total_s
    assert spent.services_s == 0
    assert runnable() >= 1
