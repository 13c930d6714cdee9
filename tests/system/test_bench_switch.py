# SPDX-License-Identifier: Apache-2.0
"""`railweave bench switch`: its JSON, its text, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from system.command import Command

from railweave.switch.targets import TARGETS

Start = Callable[..., Command]


def test_it_measures_the_embedded_switch(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "speed.json"
    code, complaint = start("bench", "switch", "--lanes", "64", "--workers", "3", "--seconds", "0.2",
                            "--json", str(path)).end()  # fmt: skip
    assert code == 0, complaint
    result = json.loads(path.read_text())
    assert (result["lanes"], result["workers"]) == (64, 3)
    assert result["engine_ns_per_packet"] > 0
    assert result["pps"]["embedded"] > 0
    assert (result["pps"]["bmv2"], result["ratio"]) == (None, None)


def test_it_says_that_bmv2_is_missing(start: Start, tmp_path: Path) -> None:
    if TARGETS["bmv2"].missing() is None:
        pytest.skip("BMv2 is installed here")
    path = tmp_path / "speed.json"
    command = start("bench", "switch", "--seconds", "0.2", "--vs", "bmv2", "--json", str(path))
    code, complaint = command.end()
    assert code == 0, complaint
    result = json.loads(path.read_text())
    assert result["pps"]["bmv2"] is None
    assert "simple_switch_grpc is not on PATH" in result["missing"]


def test_it_compares_with_bmv2(start: Start, tmp_path: Path) -> None:
    if missing := TARGETS["bmv2"].missing():
        pytest.skip(missing)
    path = tmp_path / "speed.json"
    code, complaint = start("bench", "switch", "--lanes", "64", "--seconds", "0.3", "--vs", "bmv2",
                            "--json", str(path)).end()  # fmt: skip
    assert code == 0, complaint
    result = json.loads(path.read_text())
    assert result["ratio"] == pytest.approx(result["pps"]["embedded"] / result["pps"]["bmv2"], rel=0.1)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(("--lanes", "100"), "no program is compiled for 100 lanes"), (("--vs", "tofino"), "no such target")],
)
def test_refusals(start: Start, arguments: tuple[str, ...], words: str) -> None:
    code, complaint = start("bench", "switch", *arguments).end()
    assert code == 1
    assert words in complaint
