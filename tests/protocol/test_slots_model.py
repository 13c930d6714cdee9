# SPDX-License-Identifier: Apache-2.0
"""Spin exhausts the models of slots and of moves, and refutes each mutant of them: so the check can fail."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

MODELS = Path(__file__).parent / "models"
SLOTS, MOVES = MODELS / "slots.pml", MODELS / "moves.pml"
DEADLINE_S = 120
MISSING = [tool for tool in ("spin", "gcc", "cpp") if shutil.which(tool) is None]

pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"model checker: {', '.join(MISSING)} not on PATH")

ONE_LEVEL = ["LEVELS=1", "HOSTS=2"]
TWO_LEVELS = ["LEVELS=2", "HOSTS=3"]


def _run(command: list[str], folder: Path) -> str:
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    assert done.returncode == 0, f"{command[0]} failed: {done.stdout}{done.stderr}"
    return done.stdout


def build(folder: Path, definitions: list[str], model_of: Path, *options: str) -> None:
    """Make the checker `folder`/pan of a model."""
    model = _run(["cpp", "-P", *(f"-D{d}" for d in definitions), str(model_of)], folder)
    (folder / "model.pml").write_text(model)
    _run(["spin", "-a", "model.pml"], folder)
    _run(["gcc", "-O2", "-w", "-DCOLLAPSE", *options, "-o", "pan", "pan.c"], folder)


def check(folder: Path, *options: str) -> tuple[int, int]:
    """Return (errors, states stored) of a search of the whole state space of what `build` has made."""
    report = _run(["./pan", "-m100000", *options], folder)
    assert "max search depth too small" not in report or "errors: 0" not in report, report
    found = re.search(r"errors: (\d+)\s+(\d+) states, stored", report)
    assert found, report
    return int(found[1]), int(found[2])


def search(folder: Path, definitions: list[str], model_of: Path = SLOTS) -> tuple[int, int]:
    """Return (errors, states stored) of a search for violated assertions and for states without an end."""
    build(folder, definitions, model_of, "-DSAFETY")
    return check(folder)


@pytest.mark.parametrize(
    "definitions",
    [ONE_LEVEL, ["LEVELS=1", "HOSTS=4"], TWO_LEVELS, ["LEVELS=2", "HOSTS=5"]],
    ids=" ".join,
)
def test_no_wrong_sum_and_nobody_waits_forever(
    definitions: list[str], tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    errors, states = search(tmp_path, definitions)
    assert errors == 0
    record_property(
        "summary", f"spin: slot algorithm with {' '.join(definitions)}: {states} states, exhausted"
    )


@pytest.mark.parametrize(
    ("mutant", "definitions"),
    [
        ("NEVER_ENDS", ONE_LEVEL),
        ("NEVER_ENDS", TWO_LEVELS),
        ("NO_TAG_CHECK", ONE_LEVEL),
        ("ONE_COPY", ONE_LEVEL),
        ("UNSIGNED_SERIALS", ONE_LEVEL),
        ("NO_SEEN", ONE_LEVEL),
        ("NO_RESULT_PRESENT", TWO_LEVELS),
        ("RESULT_WITHOUT_TAG", TWO_LEVELS),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else value,
)
def test_mutant_is_refuted(mutant: str, definitions: list[str], tmp_path: Path) -> None:
    errors, _ = search(tmp_path, [*definitions, f"MUTANT_{mutant}"])
    assert errors > 0


@pytest.mark.parametrize(
    "definitions",
    [
        ["HOSTS=2", "S=2", "CHUNKS=5"],
        ["HOSTS=3", "S=1", "CHUNKS=4"],
        ["HOSTS=2", "S=1", "CHUNKS=4", "MOVES=1", "HALTS=2"],
    ],
    ids=" ".join,
)
def test_a_group_that_moves_loses_nothing(
    definitions: list[str], tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    errors, states = search(tmp_path, definitions, MOVES)
    assert errors == 0
    record_property("summary", f"spin: moves with {' '.join(definitions)}: {states} states, exhausted")


@pytest.mark.parametrize(
    "mutant", ["NEVER_ENDS", "KEEP_ONE_WINDOW", "OWN_POSITION", "POSITION_OF_ONE", "SAME_GROUP"]
)
def test_mutant_of_moves_is_refuted(mutant: str, tmp_path: Path) -> None:
    errors, _ = search(tmp_path, ["HOSTS=2", "S=2", "CHUNKS=5", f"MUTANT_{mutant}"], MOVES)
    assert errors > 0


@pytest.mark.parametrize("mutant", ["OWN_MARK", "TAKES_VOID", "RESUMES_VOID"])
def test_mutant_of_restarts_is_refuted(mutant: str, tmp_path: Path) -> None:
    definitions = ["HOSTS=2", "S=1", "CHUNKS=5", "MOVES=1", "HALTS=1", f"MUTANT_{mutant}"]
    errors, _ = search(tmp_path, definitions, MOVES)
    assert errors > 0
