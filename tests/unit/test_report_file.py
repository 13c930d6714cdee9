# SPDX-License-Identifier: Apache-2.0
"""A rank's report, and what is read from it."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from railweave._native.agent import Agent
from railweave.experiments.program.collect import collect
from railweave.hosts.errors import InvalidOption
from railweave.hosts.report_file import ReportFile
from railweave.hosts.reports import RailReport, Record, Reporter, SentBytes
from railweave.topologies.lab.counters import InterfaceCounters
from railweave.topologies.planes import planes


def test_a_report_says_when_the_rank_joined_and_left(tmp_path: Path) -> None:
    file = tmp_path / "report.jsonl"
    report = ReportFile(str(file), 1)
    report.close(Reporter(Agent(0, 1)))
    joined, left = (json.loads(line) for line in file.read_text().splitlines())
    assert (joined["event"], left["event"], joined["rank"]) == ("joined", "left", 1)
    assert joined["at"] <= left["at"]
    assert (left["slices"], left["rails"]) == ([], [])


def test_a_report_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match=r"missing/report.* cannot be written: No such file"):
        ReportFile(str(tmp_path / "missing" / "report"), 0)


def test_reports_are_joined_with_what_the_interfaces_sent(tmp_path: Path) -> None:
    sent = SentBytes(payload=800, headers=150, resends=0, recovery=0, heartbeats=40, control=10)
    rail = RailReport("tcp", "tcp", 1.0, 2, 800, 1000, sent, 1000, 3, 3, 0, 0, 0, 0.5)
    slices = [Record(4, "tcp", 7.0, 7.5, 400), Record(5, "tcp", 7.5, 7.6, 4, survey=True)]
    line = {
        "event": "left",
        "rank": 0,
        "at": 8.0,
        "slices": [asdict(s) for s in slices],
        "rails": [asdict(rail)],
    }
    reports = {rank: tmp_path / f"{rank}.jsonl" for rank in range(2)}
    reports[0].write_text(json.dumps(line) + "\n")
    topology = planes(2, ["tcp"])
    found = collect(reports, topology.planes, {"tcp": {"h1": InterfaceCounters(1000, 3, 0)}})
    assert found.joined == [0]
    (account,) = found.rails
    assert (account.agent_bytes, account.unexplained_bytes, account.bytes_agree) == (1000, 0, True)
    assert [(span.step, span.start_s, span.end_s) for span in found.spans] == [(4, 0.0, 0.5)]
    assert found.start_s == 7.0
    del reports[0]
    assert collect(reports, topology.planes, {}).rails == []
