# SPDX-License-Identifier: Apache-2.0
"""Rails of in-network algorithms in a lab. One algorithm is in railweave, the other in a folder outside."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from commands import railweave


@pytest.fixture(scope="module")
def mine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("algorithms") / "mine"
    railweave("algorithm", "new", folder)
    return folder


def bench(mine: Path, out: Path, *words: str) -> Any:
    rails = "--hosts", "3", "--rails", f"{mine},switchml,tcp"
    return json.loads(railweave("bench", *words, *rails, "--out", out, "--json", "-").stdout)


@pytest.mark.parametrize("dtype", ["int32", "float32"])
def test_calls_are_split_among_algorithms_and_tcp(mine: Path, dtype: str, tmp_path: Path) -> None:
    shares = "--shares", "mine=1,switchml=1,tcp=1"
    work = "--sizes", "256K", "--iters", "5", "--dtype", dtype, "--verify", "each"
    (row,) = bench(mine, tmp_path, "all-reduce", *shares, *work)["rows"]
    assert row["wrong"] == 0
    carries = {"mine": dtype == "int32", "switchml": True, "tcp": True}
    assert {rail: share > 0.3 for rail, share in row["shares"].items()} == carries


def test_training_counts_every_byte(tmp_path: Path) -> None:
    """Ends with status 1 if the bytes of a rail do not agree with those of its interfaces."""
    railweave("demo", "--hosts", "2", "--rails", "switchml,tcp", "--steps", "20", "--out", tmp_path)


def test_rails_of_algorithms_are_excluded_and_come_back(mine: Path, tmp_path: Path) -> None:
    faults = "--faults", "switch killed", "--hit", "mine,switchml", "--repeat", "1"
    rows = bench(mine, tmp_path, "failover", *faults)["rows"]
    assert [row["rail"] for row in rows] == ["mine", "switchml"]
    for row in rows:
        assert (row["wrong"], row["errors"], row["failures"], row["expected"]) == (0, 0, 1, 1)
        assert row["readmit_ms"] is not None
