# SPDX-License-Identifier: Apache-2.0
"""Spin shows under weak fairness that rounds and moves starve nobody, and refutes each mutant of them.

Every mutant passes the check of what is asserted: it does nothing wrong, only nothing more.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from protocol.test_slots_model import MODELS, build, check, pytestmark

__all__ = ["pytestmark"]  # without spin these are skipped as well

ROUNDS, MOVES = MODELS / "rounds_progress.pml", MODELS / "moves_progress.pml"
CLAIMS = {ROUNDS: ["asserted", "calls", "rounds", "returns"], MOVES: ["asserted", "ends", "returns"]}
FAIR = "-DNFAIR=5"  # room for a counter of each process


def holds(folder: Path, claim: str) -> tuple[bool, int]:
    """Return whether spin finds no fair run that breaks a claim, and how many states it has stored."""
    fairly = () if claim == "asserted" else ("-f",)
    errors, states = check(folder, "-a", *fairly, "-N", claim)
    return errors == 0, states


@pytest.mark.parametrize(
    ("model", "definitions"),
    [
        (ROUNDS, ["FAULTS=0", "LOSSES=1"]),
        (ROUNDS, ["FAULTS=1", "LOSSES=0"]),
        (MOVES, ["FAULTS=2", "CHANGES=2", "LOSSES=1"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else value.stem,
)
def test_nobody_starves(
    model: Path, definitions: list[str], tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    build(tmp_path, definitions, model, FAIR)
    began, counts = time.monotonic(), []
    for claim in CLAIMS[model]:
        held, states = holds(tmp_path, claim)
        assert held, claim
        counts.append(f"{claim} {states}")
    what = f"{model.stem} with {' '.join(definitions)}: states {', '.join(counts)}"
    record_property("summary", f"spin: {what}, exhausted in {time.monotonic() - began:.0f} s")


@pytest.mark.parametrize(
    ("mutant", "claim"),
    [("WIDENS", "rounds"), ("BEGINS_ANEW", "rounds"), ("NO_HOLD", "calls"), ("SAYS_ONCE", "rounds")],
)
def test_mutant_of_rounds_starves_somebody(mutant: str, claim: str, tmp_path: Path) -> None:
    build(tmp_path, ["FAULTS=0", f"MUTANT_{mutant}"], ROUNDS, FAIR)
    assert holds(tmp_path, "asserted")[0]
    assert not holds(tmp_path, claim)[0]


@pytest.mark.parametrize(
    ("mutant", "claim"),
    [
        ("WAITS_FOR_LEAVER", "ends"),
        ("NO_DEADLINE", "ends"),
        ("ASKS_ONCE", "ends"),
        ("FORGETS_CHANGES", "returns"),
    ],
)
def test_mutant_of_moves_starves_somebody(mutant: str, claim: str, tmp_path: Path) -> None:
    build(tmp_path, [f"MUTANT_{mutant}"], MOVES, FAIR)
    assert holds(tmp_path, "asserted")[0]
    assert not holds(tmp_path, claim)[0]
