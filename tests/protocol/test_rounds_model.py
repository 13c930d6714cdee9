# SPDX-License-Identifier: Apache-2.0
"""Spin exhausts the model of how ranks agree which rails live, and refutes each mutant of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from protocol.test_slots_model import MODELS, pytestmark, search

__all__ = ["pytestmark"]  # without spin these are skipped as well

ROUNDS = MODELS / "rounds.pml"


@pytest.mark.parametrize(
    "definitions", [["HOSTS=2", "EPOCHS=2", "CALLS=2"], ["HOSTS=3", "EPOCHS=1", "CALLS=2"]], ids=" ".join
)
def test_all_hosts_decide_alike_and_nobody_hangs(
    definitions: list[str], tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    errors, states = search(tmp_path, definitions, ROUNDS)
    assert errors == 0
    record_property("summary", f"spin: rounds with {' '.join(definitions)}: {states} states, exhausted")


@pytest.mark.parametrize(
    "mutant",
    [
        "NEVER_ENDS",
        "ANY_ORDER",
        "SUBMITS_WHILE_FROZEN",
        "BOUNDARY_OF_ONE",
        "ANY_ATTEMPT",
        "ANSWER_OF_ONE",
    ],
)
def test_mutant_of_rounds_is_refuted(mutant: str, tmp_path: Path) -> None:
    errors, _ = search(tmp_path, ["HOSTS=2", f"MUTANT_{mutant}"], ROUNDS)
    assert errors > 0
