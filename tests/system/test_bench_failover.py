# SPDX-License-Identifier: Apache-2.0
"""`railweave bench failover`, short: a rail fails under exact sums, and what cannot be is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from system.command import Command

FIELDS = ("fault", "rail", "pause_ms", "reroute_ms", "readmit_ms", "wrong", "errors")


def test_a_rail_fails_and_comes_back_and_no_number_is_wrong(
    start: Callable[..., Command], tmp_path: Path
) -> None:
    file, picture = tmp_path / "r.json", tmp_path / "r.png"
    command = start(
        *("bench", "failover", "--hosts", "2", "--rails", "tcp,tcp", "--hit", "tcp1", "--rate", "50M"),
        *("--faults", "switch port down,rank killed", "--trials", "1"),
        *("--json", str(file), "--plot", str(picture)),
    )
    code, told = command.end()
    assert code == 0, told
    result = json.loads(file.read_text())
    assert set(result) == {"ok", "command", "versions", "seed", "rows"}
    fault, killed = result["rows"]
    assert all(field in row for row in (fault, killed) for field in FIELDS)
    assert (fault["fault"], fault["rail"]) == ("switch port down", "tcp1")
    assert (fault["wrong"], fault["errors"], fault["outcomes"]) == (0, 0, {"went on": 1})
    assert (fault["unused"], fault["rerouted"], fault["failures"]) == (0, 1, 1)
    assert fault["readmit_ms"] > 0
    assert killed["outcomes"] == {"PeerLost": 1}
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_what_cannot_be_is_refused_in_one_line(start: Callable[..., Command]) -> None:
    code, told = start("bench", "failover", "--rails", "tcp").end()
    assert (code, told.count("\n")) == (1, 1)
    assert "needs a second rail" in told
    code, told = start("bench", "failover", "--plot", "curve.txt").end()
    assert code == 1
    assert "expected a name that ends in" in told
