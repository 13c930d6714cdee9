# SPDX-License-Identifier: Apache-2.0
"""A rank's report file, and the results that are read from it."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from pathlib import Path

import pytest

from railweave._native.agent import Agent
from railweave.experiments.program.collect import collect
from railweave.hosts.errors import InvalidOption
from railweave.hosts.report_file import ReportFile, latest_of
from railweave.hosts.reports import RailReport, Record, Reporter, SentBytes
from railweave.topologies.lab.counters import InterfaceCounters
from railweave.topologies.lab.flows import Flow, Flows
from railweave.topologies.planes import planes


def test_a_report_says_when_the_rank_joined_and_left(tmp_path: Path) -> None:
    file = tmp_path / "report.jsonl"
    ReportFile(str(file), 1, Reporter(Agent(0, 1))).close()
    joined, left = (json.loads(line) for line in file.read_text().splitlines())
    assert (joined["event"], left["event"], joined["rank"]) == ("joined", "left", 1)
    assert joined["at"] <= left["at"]
    assert (left["slices"], left["rails"]) == ([], [])


def test_a_report_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match=r"missing/report.*: No such file"):
        ReportFile(str(tmp_path / "missing" / "report"), 0, Reporter(Agent(0, 1)))


def test_counts_so_far_are_kept_in_a_file_that_ends_with_the_rank(tmp_path: Path) -> None:
    file = tmp_path / "report.jsonl"
    report = ReportFile(str(file), 3, Reporter(Agent(0, 1)), every_s=0.001)
    found = []
    while len(found) < 2:  # the file is replaced repeatedly, and always complete
        if latest_of(file).exists() and (text := latest_of(file).read_text()) not in found:
            found.append(text)
    first, second = map(json.loads, found)
    assert (first["event"], first["rank"], first["rails"]) == ("running", 3, [])
    assert first["at"] < second["at"]
    report.close()
    assert [path.name for path in tmp_path.iterdir()] == ["report.jsonl"]


def test_counts_that_cannot_be_written_do_not_end_the_rank(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "report.jsonl"
    latest_of(file).mkdir()
    report = ReportFile(str(file), 0, Reporter(Agent(0, 1)), every_s=0.001)
    while not caplog.records:
        time.sleep(0)
    report.close()
    assert "is not written any more: Is a directory" in caplog.text


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
        "ports": {"tcp": [4000]},
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
    flows = Flows({Flow("tcp", (4000, 5000)): 1000, Flow("tcp", (5000, 4001)): 900, Flow("udp", (9, 9)): 500})
    split = {**line, "rank": 1, "slices": [], "ports": {"tcp": [4001]}}
    reports[0].write_text("".join(json.dumps(one) + "\n" for one in (line, split)))
    found = collect(reports, topology.planes, {"tcp": {"h1": InterfaceCounters(2500, 8, 0, flows)}})
    (account,) = found.rails  # the sum of both communicators
    assert (account.agent_bytes, account.others, account.bytes_agree) == (2000, {"udp port 9": 500}, True)
    del reports[0]
    assert collect(reports, topology.planes, {}).rails == []
