# SPDX-License-Identifier: Apache-2.0
"""`railweave bench striping`, small, in labs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from system.command import Command


def test_a_split_is_learnt_and_no_number_is_wrong(start: Callable[..., Command], tmp_path: Path) -> None:
    file, picture = tmp_path / "s.json", tmp_path / "s.png"
    code, told = start(
        *("bench", "striping", "--parts", "convergence", "--hosts", "2", "--sizes", "256K"),
        *("--out", str(tmp_path), "--json", str(file), "--plot", str(picture)),
    ).end()
    assert code == 0, told
    result = json.loads(file.read_text())
    assert (result["ok"], result["wrong"]) == (True, 0)
    for trace in result["rows"]:
        assert len(trace["shares"]) == 120
        assert len(trace["phases"]) == 3
        assert all(0 <= phase["final_share"] <= 1 for phase in trace["phases"])  # which, the machine decides
    assert (tmp_path / "s-convergence.png").read_bytes().startswith(b"\x89PNG")


def test_what_cannot_be_is_refused_in_one_line(start: Callable[..., Command]) -> None:
    code, told = start("bench", "striping", "--parts", "speed").end()
    assert (code, told.count("\n")) == (1, 1)
