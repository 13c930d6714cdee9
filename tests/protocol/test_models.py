# SPDX-License-Identifier: Apache-2.0
"""Spin checks all states of the models of slots and moves, and that moves and rounds make progress.

It refutes mutants. The mutants of progress satisfy all assertions: their only fault is that somebody starves.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

MODELS = Path(__file__).parent / "models"
NAMES = ("slots", "moves", "moves_progress", "rounds_progress")
SLOTS, MOVES, MOVES_PROGRESS, ROUNDS_PROGRESS = (MODELS / f"{name}.pml" for name in NAMES)
DEADLINE_S = 120
MISSING = [tool for tool in ("spin", "gcc", "cpp") if shutil.which(tool) is None]

pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"model checker: {', '.join(MISSING)} not on PATH")


def _run(command: list[str], folder: Path) -> str:
    # Run without a preloaded sanitizer, because spin's generated code reads beyond the end of its memory.
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=DEADLINE_S, check=False, env=environment
    )
    assert done.returncode == 0, f"{command[0]} failed: {done.stdout}{done.stderr}"
    return done.stdout


def build(folder: Path, definitions: list[str], model_of: Path, *options: str) -> None:
    """Build a model's checker `folder`/pan."""
    model = _run(["cpp", "-P", *(f"-D{d}" for d in definitions), str(model_of)], folder)
    (folder / "model.pml").write_text(model)
    _run(["spin", "-a", "model.pml"], folder)
    _run(["gcc", "-O2", "-w", "-DCOLLAPSE", *options, "-o", "pan", "pan.c"], folder)


def check(folder: Path, *options: str) -> tuple[int, int]:
    """Search all states with the checker that `build` has made. Return (errors, states stored)."""
    report = _run(["./pan", "-m100000", *options], folder)
    assert "max search depth too small" not in report or "errors: 0" not in report, report
    found = re.search(r"errors: (\d+)\s+(\d+) states, stored", report)
    assert found, report
    return int(found[1]), int(found[2])


def search(folder: Path, definitions: list[str], model_of: Path) -> tuple[int, int]:
    """Search for violated assertions and for deadlocks. Return (errors, states stored)."""
    build(folder, definitions, model_of, "-DSAFETY")
    return check(folder)


def words(value: object) -> str:
    """Return the name of a parameter for pytest."""
    return " ".join(value) if isinstance(value, list) else getattr(value, "stem", str(value))


@pytest.mark.parametrize(
    ("model", "definitions"),
    [
        (SLOTS, ["LEVELS=1", "HOSTS=4"]),
        (SLOTS, ["LEVELS=2", "HOSTS=5"]),
        (SLOTS, ["LEVELS=2", "HOSTS=4", "OWNERS"]),
        (MOVES, ["HOSTS=2", "S=2", "CHUNKS=5"]),
        (MOVES, ["HOSTS=3", "S=1", "CHUNKS=4"]),
        (MOVES, ["HOSTS=2", "S=1", "CHUNKS=4", "MOVES=1", "HALTS=2"]),
    ],
    ids=words,
)
def test_no_assertion_is_violated_and_nobody_waits_forever(
    model: Path, definitions: list[str], tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    errors, states = search(tmp_path, definitions, model)
    assert errors == 0
    what = f"{model.stem} with {' '.join(definitions)}"
    record_property("summary", f"spin: {what}: {states} states, exhausted")


MOVING, HALTING = ["HOSTS=2", "S=2", "CHUNKS=5"], ["HOSTS=2", "S=1", "CHUNKS=5", "MOVES=1", "HALTS=1"]
MUTANTS: list[tuple[Path, list[str], str]] = [
    (SLOTS, ["LEVELS=1", "HOSTS=2"], "NEVER_ENDS NO_TAG_CHECK ONE_COPY UNSIGNED_SERIALS NO_SEEN"),
    (SLOTS, ["LEVELS=2", "HOSTS=3"], "NO_RESULT_PRESENT RESULT_WITHOUT_TAG"),
    (SLOTS, ["LEVELS=2", "HOSTS=4", "OWNERS"], "SUM_FOR_ALL"),
    (MOVES, MOVING, "NEVER_ENDS KEEP_ONE_WINDOW OWN_POSITION POSITION_OF_ONE SAME_GROUP"),
    (MOVES, HALTING, "OWN_MARK TAKES_VOID RESUMES_VOID"),
]


@pytest.mark.parametrize(
    ("model", "definitions", "mutant"),
    [(model, definitions, mutant) for model, definitions, some in MUTANTS for mutant in some.split()],
    ids=words,
)
def test_mutant_is_refuted(model: Path, definitions: list[str], mutant: str, tmp_path: Path) -> None:
    errors, _ = search(tmp_path, [*definitions, f"MUTANT_{mutant}"], model)
    assert errors > 0


# --- progress, under weak fairness ---

CLAIMS = {
    ROUNDS_PROGRESS: ["asserted", "calls", "rounds", "returns"],
    MOVES_PROGRESS: ["asserted", "ends", "returns"],
}
FAIR = "-DNFAIR=5"  # room for a counter of each process


def holds(folder: Path, claim: str) -> tuple[bool, int]:
    """Return whether spin finds no fair run that breaks a claim, and how many states it has stored."""
    fairly = () if claim == "asserted" else ("-f",)
    errors, states = check(folder, "-a", *fairly, "-N", claim)
    return errors == 0, states


@pytest.mark.parametrize(
    ("model", "definitions"),
    [
        (ROUNDS_PROGRESS, ["FAULTS=0", "LOSSES=1"]),
        (ROUNDS_PROGRESS, ["FAULTS=1", "LOSSES=0"]),
        (MOVES_PROGRESS, ["FAULTS=2", "CHANGES=2", "LOSSES=1"]),
    ],
    ids=words,
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


STARVING = {
    "WIDENS": (ROUNDS_PROGRESS, "rounds"),
    "BEGINS_ANEW": (ROUNDS_PROGRESS, "rounds"),
    "NO_HOLD": (ROUNDS_PROGRESS, "calls"),
    "SAYS_ONCE": (ROUNDS_PROGRESS, "rounds"),
    "WAITS_FOR_LEAVER": (MOVES_PROGRESS, "ends"),
    "NO_DEADLINE": (MOVES_PROGRESS, "ends"),
    "ASKS_ONCE": (MOVES_PROGRESS, "ends"),
    "FORGETS_CHANGES": (MOVES_PROGRESS, "returns"),
}


@pytest.mark.parametrize("mutant", STARVING)
def test_mutant_starves_somebody(mutant: str, tmp_path: Path) -> None:
    model, claim = STARVING[mutant]
    fewer = ["FAULTS=0"] if model is ROUNDS_PROGRESS else []
    build(tmp_path, [*fewer, f"MUTANT_{mutant}"], model, FAIR)
    assert holds(tmp_path, "asserted")[0]
    assert not holds(tmp_path, claim)[0]
