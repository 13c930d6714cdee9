# SPDX-License-Identifier: Apache-2.0
"""Several jobs on one network, and one job on networks of several sizes."""

from __future__ import annotations

from pathlib import Path

from system.test_runs import Start, result_of


def test_a_job_without_slots_runs_on_its_other_rails(start: Start, tmp_path: Path) -> None:
    result = result_of(
        *(start, tmp_path, "bench", "jobs", "--jobs", "3", "--hosts", "2", "--rails", "ina,tcp"),
        *("--slots", "4096", "--seconds", "3", "--size", "64K"),
    )
    assert result["ok"]
    full = "no 4096 slots in a row are free on switch s-ina: 2 groups hold 8192"
    (refused,) = (job for job in result["rows"] if full in job["why"].get("ina", ""))
    assert refused["bps"]["ina"] == 0
    assert refused["bps"]["tcp"] > 0


def test_scaling_draws_its_curve(start: Start, tmp_path: Path) -> None:
    curve = tmp_path / "curve.png"
    result = result_of(
        *(start, tmp_path, "bench", "scaling", "--hosts", "2,3", "--iters", "3", "--plot", str(curve))
    )
    (measured,) = result["rows"]
    assert (measured["contender"], measured["bytes"]) == ("ina", 16384)
    assert [point["hosts"] for point in measured["points"]] == [2, 3]
    assert curve.read_bytes().startswith(b"\x89PNG")
