# SPDX-License-Identifier: Apache-2.0
"""`railweave plan`, from links and from files of learnt costs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands import invoke

from railweave.experiments.striping.virtual import StripedJob, VirtualRail
from railweave.hosts.costs_file import save


@pytest.fixture
def costs(tmp_path: Path) -> Path:
    path = tmp_path / "costs.json"
    for ranks in (2, 4):
        job = StripedJob([VirtualRail(0.0006, 8e6), VirtualRail(0.0006, 3e6)], ranks)
        for _ in range(30):
            job.call(1 << 20)
        save(job.planners[0], path)
    return path


def test_one_size_from_links() -> None:
    done = invoke("plan 4M --rails tcp,tcp --rate 100M,30M")
    assert done.exit_code == 0
    for words in (
        "all_reduce sum float32, 4194304 bytes, 4 hosts: cold",
        "tcp0",
        "prior: kind",
        "-> ",
        "gain",
    ):
        assert words in done.stdout


def test_it_says_what_is_multicast() -> None:
    for size, words in (("4K", "not multicast: fewer than 16 chunks"), ("64K", ", multicast")):
        shown = invoke(f"plan {size} --rails ina,tcp --collective broadcast").stdout.splitlines()
        assert [words in line for line in shown[2:4]] == [True, False]


def test_a_sweep_from_a_file(costs: Path) -> None:
    done = invoke(f"plan 1K:4M --costs {costs} --hosts 4 --json -")
    assert done.exit_code == 0
    predictions = json.loads(done.stdout)["predictions"]
    assert [each["size_bytes"] for each in predictions] == [1 << place for place in range(10, 23)]
    assert predictions[-1]["state"] == "hot"
    (chosen,) = [split for split in predictions[-1]["splits"] if split["chosen"]]
    assert chosen["shares"]["r1"] == pytest.approx(3 / 11, abs=0.02)
    assert "r0 (us)" in invoke(f"plan 1K:4M --costs {costs} --hosts 4").stdout


def test_which_job_of_a_file_must_be_clear(costs: Path) -> None:
    assert "2 kinds of job: expected one of: 2 hosts" in invoke(f"plan 4M --costs {costs}").stderr
    assert "no costs of 3 hosts" in invoke(f"plan 4M --costs {costs} --hosts 3").stderr
