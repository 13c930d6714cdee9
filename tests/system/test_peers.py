# SPDX-License-Identifier: Apache-2.0
"""The other systems in comparisons use both planes, compute right sums, and leave nothing behind."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from system.command import processes_of_this_test

from railweave.experiments.contenders import Contender, Implementation, Job
from railweave.experiments.problem import SCALES
from railweave.experiments.records import Record
from railweave.experiments.runner import Runner
from railweave.experiments.scenario import Scenario, Workload
from railweave.topologies.lab.lab import Lab
from railweave.topologies.lab.options import LabOptions
from railweave.topologies.planes import planes

PLANES = ("tcp0", "tcp1")
LEAST = 0.1  # least share of the bytes on each plane
SIZES = (4096, 4 << 20)
LEAVE_S = 30.0


def able(kind: str) -> Implementation:
    made = Contender(kind, kind, PLANES).implementation()
    if obstacle := made.obstacle():
        pytest.skip(obstacle)
    return made


def scenario(kind: str, workload: Workload) -> Scenario:
    return Scenario(
        kind, (Contender(kind, kind, PLANES),), workload, hosts=2, rails=("tcp", "tcp"), repetitions=1
    )


def run(kind: str, out: Path) -> Record:
    (record,) = asyncio.run(Runner(scenario(kind, Workload(SIZES, warmup=2, iterations=5)), out).run())
    assert (record.status, record.error, record.wrong) == ("ok", "", 0)
    assert [(s.size_bytes, len(s.times_us), s.verified) for s in record.samples] == [
        (s, 5, 2 * SCALES) for s in SIZES
    ]
    sent = [record.counters[plane]["wire_bytes"] for plane in PLANES]
    assert min(sent) > LEAST * sum(sent)
    return record


def test_multipath_tcp_uses_both_planes(tmp_path: Path) -> None:
    able("mptcp")
    extra = run("mptcp", tmp_path).extra
    assert sum(counts.get("MPJoinAckRx", 0) for counts in extra["kernel"].values()) == 1
    for host in ("h1", "h2"):
        sent = [extra["bytes_sent"][plane][host] for plane in PLANES]
        assert min(sent) > LEAST * sum(sent)


def test_a_run_without_paths_is_an_error_and_endpoints_are_undone(tmp_path: Path) -> None:
    implementation = able("mptcp")
    topology = planes(2, ("tcp", "tcp"))
    addresses = {plane.name: tuple(nic.address for nic in plane.nics) for plane in topology.planes}
    job = Job(implementation.contender, 2, PLANES, addresses, str(tmp_path), 1.0, {})

    async def prepared() -> None:
        async with Lab(topology, LabOptions(tmp_path)) as lab:

            def settings() -> list[str]:
                return [lab.read("h1", ["ip", "mptcp", what, "show"]) for what in ("limits", "endpoint")]

            before = settings()
            with pytest.raises(OSError, match="0 connections"):
                async with implementation.on_lab(lab, job):
                    assert "10.2.0.1" in settings()[1]
            assert settings() == before

    asyncio.run(prepared())


def test_open_mpi_uses_both_planes(tmp_path: Path) -> None:
    able("openmpi")
    assert run("openmpi", tmp_path).versions["openmpi"]


def test_open_mpi_that_is_interrupted_leaves_no_process(tmp_path: Path) -> None:
    able("openmpi")
    seen: list[str] = []

    async def interrupted() -> None:
        def on_phase(text: str) -> None:
            if "bytes" in text:  # rank 0 reports calls
                seen.extend(processes_of_this_test())
                task.cancel()

        endless = scenario("openmpi", Workload(SIZES, warmup=2, iterations=10**9, seconds=1e9))
        task = asyncio.create_task(Runner(endless, tmp_path, on_phase=on_phase).run())
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(interrupted())
    assert any("orted" in command for command in seen)
    deadline = time.monotonic() + LEAVE_S
    while left := processes_of_this_test():
        assert time.monotonic() < deadline, left
