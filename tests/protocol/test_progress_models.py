# SPDX-License-Identifier: Apache-2.0
"""Spin shows under weak fairness that rounds, moves and multicast make progress, and refutes each mutant.

Every mutant satisfies all assertions. Its only fault is that it stops making progress.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from protocol.test_models import MODELS, build, check, pytestmark, words

__all__ = ["pytestmark"]  # skips these tests, too, if spin is missing

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
    ids=words,
)
def test_nobody_starves(
    model: Path, definitions: list[str], tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    build(tmp_path, definitions, model, FAIR, "-O2")
    began, counts = time.monotonic(), []
    for claim in CLAIMS[model]:
        held, states = holds(tmp_path, claim)
        assert held, claim
        counts.append(f"{claim} {states}")
    what = f"{model.stem} with {' '.join(definitions)}: states {', '.join(counts)}"
    record_property("summary", f"spin: {what}, exhausted in {time.monotonic() - began:.0f} s")


MUTANTS = {
    ROUNDS: {"WIDENS": "rounds", "BEGINS_ANEW": "rounds", "NO_HOLD": "calls", "SAYS_ONCE": "rounds"},
    MOVES: {
        **dict.fromkeys(("WAITS_FOR_LEAVER", "NO_DEADLINE", "ASKS_ONCE"), "ends"),
        "FORGETS_CHANGES": "returns",
    },
}


@pytest.mark.parametrize(
    ("model", "mutant"), [(model, mutant) for model, some in MUTANTS.items() for mutant in some], ids=words
)
def test_mutant_starves_somebody(model: Path, mutant: str, tmp_path: Path) -> None:
    fewer = ["FAULTS=0"] if model is ROUNDS else []
    build(tmp_path, [*fewer, f"MUTANT_{mutant}"], model, FAIR)
    assert holds(tmp_path, "asserted")[0]
    assert not holds(tmp_path, MUTANTS[model][mutant])[0]


def goes_on_forever(folder: Path, definitions: list[str]) -> tuple[bool, int]:
    """Return whether a fair run of the multicast model never ends, and how many states spin has stored."""
    build(folder, definitions, MODELS / "spread.pml", FAIR, "-DNP")
    errors, states = check(folder, "-l", "-f")
    return errors > 0, states


@pytest.mark.parametrize("definitions", [["HOSTS=3", "TASKS=1"], ["HOSTS=2", "TASKS=2"]], ids=words)
def test_every_fair_multicast_ends(
    definitions: list[str], tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    forever, states = goes_on_forever(tmp_path, definitions)
    assert not forever
    record_property(
        "summary", f"spin: spread with {' '.join(definitions)}, fairly: {states} states, exhausted"
    )


def test_a_left_neighbour_that_passes_nothing_on_starves_somebody(tmp_path: Path) -> None:
    assert goes_on_forever(tmp_path, ["HOSTS=3", "TASKS=1", "MUTANT_ASKS_LEFT_ONLY"])[0]
