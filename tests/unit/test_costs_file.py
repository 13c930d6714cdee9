# SPDX-License-Identifier: Apache-2.0
"""Learnt costs in files, and predictions as text."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from protocol.striping_job import ideal_shares

from railweave.experiments.striping.virtual import StripedJob, VirtualRail
from railweave.hosts import costs_file
from railweave.hosts.costs_file import planner_for, save
from railweave.hosts.decisions import Ledger
from railweave.hosts.errors import InvalidOption
from railweave.hosts.prediction import predict, shares
from railweave.hosts.striping import Planner, StripedRail

LARGE = 1 << 20  # elements
RAILS = [VirtualRail(0.0006, 8e6), VirtualRail(0.0006, 3e6)]


def striped(rails: list[VirtualRail] = RAILS) -> list[StripedRail]:
    return [StripedRail(f"r{place}", place, rail.kind, 100_000_000, 0.5) for place, rail in enumerate(rails)]


def start(path: Path, hosts: int = 4, **options: Any) -> Planner:
    return planner_for(striped(), hosts, Ledger(), costs=str(path), **options)


def hot_job(path: Path, ranks: int = 4) -> StripedJob:
    return StripedJob(RAILS, ranks, planners=[start(path, ranks) for _ in range(ranks)])


@pytest.fixture
def learnt(tmp_path: Path) -> Path:
    """Return the cost file of a job that has become hot."""
    job = StripedJob(RAILS, noise=0.02)
    for _ in range(40):
        job.call(LARGE)
        job.call(256)
    files = [tmp_path / f"costs{rank}.json" for rank in range(job.ranks)]
    for planner, file in zip(job.planners, files, strict=True):
        save(planner, file)
    assert len({file.read_text() for file in files}) == 1  # every rank has learnt the same
    return files[0]


def test_a_job_that_loads_costs_starts_hot(learnt: Path) -> None:
    job = hot_job(learnt)
    first = job.call(LARGE)
    assert first.shares()[1] == pytest.approx(ideal_shares(RAILS, LARGE * 4)[1], abs=0.03)
    assert first.plan.expected_s == pytest.approx(first.time_s, rel=0.1)
    assert [each.stage for each in job.planners[0]._classes.values()] == ["hot"]


def test_a_save_of_what_was_loaded_is_the_same(learnt: Path, tmp_path: Path) -> None:
    save(start(learnt), tmp_path / "again.json")
    before, after = (json.loads(path.read_text())["jobs"][0] for path in (learnt, tmp_path / "again.json"))
    assert len(before["costs"]) >= 4
    assert before == after


def test_costs_of_other_jobs_do_not_apply_and_that_is_said(learnt: Path) -> None:
    planner = start(learnt, hosts=6)
    assert planner.table.known == {}
    assert "has costs of other jobs (4 hosts, rails r0 (tcp, 100000000 bit/s)" in planner.note
    assert "none of 6 hosts" in str(predict(planner, 4096))
    assert "not there yet" in start(learnt.with_name("none.json")).note


def test_a_file_holds_several_kinds_of_jobs(learnt: Path) -> None:
    job = StripedJob(RAILS, 2)
    for _ in range(20):
        job.call(LARGE)
    save(job.planners[0], learnt)
    save(job.planners[0], learnt)
    assert [each.hosts for each in costs_file.read(learnt)] == [4, 2]
    assert start(learnt, 2).table.known
    assert start(learnt, 4).table.known


def test_ranks_with_different_files_use_none(learnt: Path, tmp_path: Path) -> None:
    planners = [start(learnt), start(learnt), start(tmp_path / "none.json"), start(learnt)]
    job = StripedJob(RAILS, planners=planners)
    assert job.call(LARGE).plan.survey_after
    assert all(not planner.table.known for planner in planners)
    assert all("different costs" in planner.note for planner in planners)


def test_a_deterministic_job_takes_loaded_costs_and_stays_with_them(learnt: Path) -> None:
    planners = [start(learnt, deterministic=True) for _ in range(4)]
    job = StripedJob(RAILS, planners=planners)
    parts = {job.call(LARGE).plan.parts for _ in range(30)}
    assert len(parts) == 1
    assert job.taken[0].shares()[1] == pytest.approx(ideal_shares(RAILS, LARGE * 4)[1], abs=0.03)
    assert job.surveys == 1  # the first, which compares the files


# ------------------------------------------------------------ hostile files


def cost(**changes: Any) -> dict[str, Any]:
    value = {"rail": "r0", "collective": "all_reduce", "numbers": "float", "size_class": 4194304}
    return {**value, "alone": True, "slowness": 1.1, "samples": 5, **changes}


def file_of(*costs: Any, **changes: Any) -> dict[str, Any]:
    rails = [{"name": f"r{place}", "kind": "tcp", "rate_bps": 10**8} for place in range(2)]
    job = {"hosts": 4, "rails": rails, "costs": list(costs)}
    return {"format": "railweave costs", "version": 2, "jobs": [job], **changes}


WRONG: dict[str, Any] = {
    "the file: a list: expected a mapping with jobs, version": [],
    "format is 'x': expected 'railweave costs'": file_of(format="x"),
    "version is 1: expected 2; remove it": file_of(version=1),
    r"the file\.version: True: expected a whole number": file_of(version=True),
    r"the file\.jobs: a mapping: expected a list": file_of(jobs={}),
    r"the file\.jobs\[0\]: no key 'hosts': expected this key": file_of(jobs=[{}]),
    r"jobs\[0\]\.costs\[0\]\.rail is 'eth0': expected one of r0, r1": file_of(cost(rail="eth0")),
    r"costs\[1\] repeats the cost of a rail and class: expected one": file_of(cost(), cost()),
    "collective is 'gather'": file_of(cost(collective="gather")),
    r"costs\[0\]\.numbers: a list: expected text": file_of(cost(numbers=[])),
    "size_class is 3: expected a power of two": file_of(cost(size_class=3)),
    r"size_class is 1152921504606846976: expected a number": file_of(cost(size_class=1 << 60)),
    r"costs\[0\]\.size_class: 1\.5: expected a whole number": file_of(cost(size_class=1.5)),
    r"costs\[0\]\.alone: 1: expected true or false": file_of(cost(alone=1)),
    "unknown key 'extra'": file_of(cost(extra=1)),
    "slowness is 0.0: expected a number from 1e-09": file_of(cost(slowness=0)),
    r"costs\[0\]\.slowness: 'fast': expected a number": file_of(cost(slowness="fast")),
    r"costs\[0\]\.slowness: True: expected a number": file_of(cost(slowness=True)),
    r"slowness is 1e\+300": file_of(cost(slowness=10**300)),
    "samples is -1": file_of(cost(samples=-1)),
}
NO_JSON = {
    "not JSON": ["", "{", "[" * 100_000, "1" * 10_000, "\ud800"],
    "NaN is not a JSON number": ['{"a": NaN}'],
}


@pytest.mark.parametrize(
    ("words", "text"),
    [
        *((words, json.dumps(value)) for words, value in WRONG.items()),
        *((words, text) for words, texts in NO_JSON.items() for text in texts),
    ],
    ids=lambda text: text[:40],
)
def test_what_is_wrong_in_a_file_is_named(tmp_path: Path, words: str, text: str) -> None:
    path = tmp_path / "costs.json"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(InvalidOption, match=words) as error:
        start(path)
    assert str(path) in str(error.value)
    assert len(str(error.value)) < 400


def test_files_that_cannot_be_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidOption, match="directory"):
        start(tmp_path)
    nowhere = Path("/proc/none/costs.json")
    with pytest.raises(
        InvalidOption, match=f"file {nowhere}: No such .*: expected a file that can be written"
    ):
        save(start(tmp_path / "none"), nowhere)
    monkeypatch.setattr(costs_file, "LARGEST_FILE", 10)
    (tmp_path / "costs.json").write_text(json.dumps(file_of()))
    with pytest.raises(InvalidOption, match="199 bytes: expected 10 bytes at most"):
        start(tmp_path / "costs.json")


# ------------------------------------------------------------ predictions


def test_a_split_is_predicted() -> None:
    job = StripedJob(RAILS)
    for _ in range(40):
        job.call(LARGE)
    told = predict(job.planners[0], LARGE * 4)
    assert [(rail.rail, rail.state, rail.source) for rail in told.rails] == [
        ("r0", "up", "measured"),
        ("r1", "up", "measured"),
    ]
    (chosen,) = [split for split in told.splits if split.chosen]
    assert chosen.gain == pytest.approx(3 / 8, abs=0.05)
    assert chosen.time_us == pytest.approx(job.taken[-1].time_s * 1e6, rel=0.05)
    assert "a split over r0, r1 is predicted to be 3" in told.why
    assert "->" in str(told)
    assert "all_reduce sum float32, 4194304 bytes, 4 hosts: hot" in str(told)
    assert shares(job.planners[0])["r1"] == pytest.approx(3 / 11, abs=0.03)


@pytest.mark.parametrize(
    ("latencies_s", "count", "calls", "chosen", "why"),
    [
        ((0.0004, 0.001), 256, 40, [True, False], "so small a tensor is not cut"),
        ((0.0006, 0.0046), 8192, 600, [True, False, False], "r0 is the quickest rail .*; a split would gain"),
    ],
)
def test_a_single_rail_is_predicted(
    latencies_s: tuple[float, ...], count: int, calls: int, chosen: list[bool], why: str
) -> None:
    job = StripedJob([VirtualRail(a_s, 8e6) for a_s in latencies_s])
    for _ in range(calls):  # until all choices have been compared
        job.call(count)
    told = predict(job.planners[0], 4 * count)
    assert [split.chosen for split in told.splits] == chosen
    assert re.search(why, told.why)


def test_rails_that_cannot_are_predicted() -> None:
    job = StripedJob([VirtualRail(0.0003, 1e7, "ina"), VirtualRail(0.0006, 8e6)])
    job.change([True, False])
    job.call(LARGE)
    planner = job.planners[0]
    told = predict(planner, LARGE * 8, dtype="float64")
    assert told.splits == ()
    assert [rail.obstacle for rail in told.rails] == [
        "dtype: ina reduces bfloat16, float16, float32, int32 with avg, max, min, sum",
        "down: its cable is out",
    ]
    assert told.why == "no rail can carry such calls now"
    assert predict(planner, LARGE * 4).why == "r0 is the only rail that can carry such calls now"


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"size_bytes": 0}, "size_bytes is 0: expected at least 4"),
        ({"size_bytes": True}, "size_bytes is True"),
        ({"size_bytes": 10, "collective": "all_gather"}, "at least 16, the least tensor of all_gather"),
        ({"size_bytes": 64, "collective": "gather"}, "collective 'gather': expected one of all_reduce"),
        ({"size_bytes": 64, "dtype": "float8"}, "dtype 'float8': expected one of int64, uint8, int8"),
        ({"size_bytes": 64, "op": "xor"}, "op 'xor': expected one of sum, max, min, avg, prod"),
    ],
)
def test_questions_that_make_no_sense(asked: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidOption, match=words):
        predict(StripedJob(RAILS).planners[0], **asked)
