# SPDX-License-Identifier: Apache-2.0
"""`railweave plan`, from links and from files of learnt costs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from railweave.cli import build
from railweave.experiments.striping.virtual import StripedJob, VirtualRail
from railweave.hosts.costs_file import save


def plan(*arguments: str) -> Result:
    return CliRunner().invoke(build("plan"), ["plan", *arguments])


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
    done = plan("4M", "--rails", "tcp,tcp", "--rate", "100M,30M")
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
        shown = plan(size, "--rails", "ina,tcp", "--collective", "broadcast").stdout.splitlines()
        assert [words in line for line in shown[2:4]] == [True, False]


def test_a_sweep_from_a_file(costs: Path) -> None:
    done = plan("1K:4M", "--costs", str(costs), "--hosts", "4", "--json", "-")
    assert done.exit_code == 0
    predictions = json.loads(done.stdout)["predictions"]
    assert [each["size_bytes"] for each in predictions] == [1 << place for place in range(10, 23)]
    assert predictions[-1]["state"] == "hot"
    (chosen,) = [split for split in predictions[-1]["splits"] if split["chosen"]]
    assert chosen["shares"]["r1"] == pytest.approx(3 / 11, abs=0.02)
    assert "r0 (us)" in plan("1K:4M", "--costs", str(costs), "--hosts", "4").stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("5",), "size '5': expected a multiple of 4"),
        (("4M", "--rails", "tcp,ib"), "rail 'ib': expected one of ina"),
        (("4M", "--hosts", "1"), "--hosts 1: expected at least 2"),
        (("4M", "--rate", "1M,2M"), "2 rates for 3 planes"),
        (("4M", "--op", "xor"), "op 'xor': expected one of sum"),
        (("4M", "--collective", "gather"), "collective 'gather': expected one of all_reduce"),
        (("4M", "--costs", "/none/costs.json"), "/none/costs.json: No such file"),
        (("4M", "--costs", "/none", "--rails", "tcp"), "--costs and --rails: expected one option"),
    ],
)
def test_wrong_arguments_give_one_line(arguments: tuple[str, ...], words: str) -> None:
    done = plan(*arguments)
    assert done.exit_code == 2
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


def test_which_job_of_a_file_must_be_clear(costs: Path) -> None:
    assert "2 kinds of job: expected one of: 2 hosts" in plan("4M", "--costs", str(costs)).stderr
    assert "no costs of 3 hosts" in plan("4M", "--costs", str(costs), "--hosts", "3").stderr
