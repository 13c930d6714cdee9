# SPDX-License-Identifier: Apache-2.0
"""The throughput of jobs that run at the same time. It counts only the time in which all jobs run."""

from __future__ import annotations

from pathlib import Path

import pytest

from railweave.experiments.errors import OptionError
from railweave.experiments.jobs.run import JobsOptions, JobsResult, as_json, result_of, utilisations
from railweave.experiments.trace import Call, RankTrace, Slice, throughput
from railweave.topologies.lab.options import LabOptions
from railweave.topologies.planes import planes

OPTIONS = JobsOptions(planes(2, ("ina",), (100_000_000,)), LabOptions(Path("out")))


Job = tuple[str, list[RankTrace]]


def job(name: str, start: float, end: float, bytes_per_s: int) -> Job:
    """Return a job that reduced at a constant rate, one slice per second."""
    begins = [start + i for i in range(int(end - start))]
    calls = [Call(at, at + 1, (Slice("ina", at, at + 1, bytes_per_s),)) for at in begins]
    return name, [RankTrace(calls=calls)]


def result(*jobs: Job) -> JobsResult:
    return result_of(OPTIONS, dict(jobs))


def test_only_the_time_in_which_all_run_counts() -> None:
    fast_alone = job("a", 0, 20, 2_000_000)
    late = job("b", 10.5, 20.5, 1_000_000)
    measured = result(fast_alone, late)
    assert measured.window_s == pytest.approx(20 - 10.5 - 2)
    assert [row.bps["ina"] for row in measured.rows] == pytest.approx([16e6, 8e6])
    assert [row.share["ina"] for row in measured.rows] == pytest.approx([2 / 3, 1 / 3])


def test_a_slice_counts_by_the_part_inside_the_window() -> None:
    one = [RankTrace(calls=[Call(1, 5, (Slice("ina", 1, 5, 400), Slice("tcp", 1, 3, 50)))])]
    assert throughput(one, 2, 3, "ina") == pytest.approx(8 * 100)
    assert throughput(one, 2, 3) == pytest.approx(8 * 125)
    assert throughput(one, 6, 7, "ina") == 0


def test_jobs_that_never_ran_at_once_are_no_measurement() -> None:
    with pytest.raises(OptionError, match="did not run at the same time"):
        result(job("a", 0, 5, 1), job("b", 5, 10, 1))


def test_wrong_elements_and_silent_jobs_are_told() -> None:
    good = job("a", 0, 10, 1000)
    assert result(good).ok
    bad = ("a", [*good[1], RankTrace(wrong=1)])
    assert not result(bad).ok
    assert result(bad).rows[0].wrong == 1


def test_utilisation_is_of_what_the_links_allow() -> None:
    measured = result(job("a", 0, 10, 6_000_000), job("b", 0, 10, 6_000_000))
    fraction = measured.utilisation("ina")
    assert fraction is not None
    assert 0.96 < fraction < 1.1  # 96 Mbit/s of at most 100, headers included
    assert utilisations(measured) == [
        f"ina: all jobs together reach {fraction:.1%} of the physical limit of the links."
    ]
    assert as_json(measured)["utilisation"]["ina"] == fraction
