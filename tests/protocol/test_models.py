# SPDX-License-Identifier: Apache-2.0
"""Spin checks all states of the model of slots, and that moves and rounds make progress.

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
SLOTS, MOVES, ROUNDS = (MODELS / f"{name}.pml" for name in ("slots", "moves_progress", "rounds_progress"))
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


def search(folder: Path, definitions: list[str]) -> tuple[int, int]:
    """Search the model of slots for violated assertions and deadlocks. Return (errors, states stored)."""
    build(folder, definitions, SLOTS, "-DSAFETY")
    return check(folder)


def words(value: object) -> str:
    """Return the name of a parameter for pytest."""
    return " ".join(value) if isinstance(value, list) else getattr(value, "stem", str(value))


@pytest.mark.parametrize(
    "definitions",
    [["LEVELS=1", "HOSTS=4"], ["LEVELS=2", "HOSTS=5"], ["LEVELS=2", "HOSTS=4", "OWNERS"]],
    ids=words,
)
def test_no_assertion_is_violated_and_nobody_waits_forever(
    definitions: list[str], tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    errors, states = search(tmp_path, definitions)
    assert errors == 0
    record_property("summary", f"spin: slots with {' '.join(definitions)}: {states} states, exhausted")


MUTANTS = [
    *(
        (["LEVELS=1", "HOSTS=2"], mutant)
        for mutant in ("NEVER_ENDS", "NO_TAG_CHECK", "ONE_COPY", "UNSIGNED_SERIALS", "NO_SEEN")
    ),
    *((["LEVELS=2", "HOSTS=3"], mutant) for mutant in ("NO_RESULT_PRESENT", "RESULT_WITHOUT_TAG")),
    (["LEVELS=2", "HOSTS=4", "OWNERS"], "SUM_FOR_ALL"),
]


@pytest.mark.parametrize(("definitions", "mutant"), MUTANTS, ids=words)
def test_mutant_is_refuted(definitions: list[str], mutant: str, tmp_path: Path) -> None:
    errors, _ = search(tmp_path, [*definitions, f"MUTANT_{mutant}"])
    assert errors > 0


# --- progress, under weak fairness ---

CLAIMS = {
    ROUNDS: ["asserted", "calls", "rounds", "returns"],
    MOVES: ["asserted", "ends", "returns"],
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
        (ROUNDS, ["FAULTS=0", "LOSSES=1"]),
        (ROUNDS, ["FAULTS=1", "LOSSES=0"]),
        (MOVES, ["FAULTS=2", "CHANGES=2", "LOSSES=1"]),
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
    "WIDENS": (ROUNDS, "rounds"),
    "BEGINS_ANEW": (ROUNDS, "rounds"),
    "NO_HOLD": (ROUNDS, "calls"),
    "SAYS_ONCE": (ROUNDS, "rounds"),
    "WAITS_FOR_LEAVER": (MOVES, "ends"),
    "NO_DEADLINE": (MOVES, "ends"),
    "ASKS_ONCE": (MOVES, "ends"),
    "FORGETS_CHANGES": (MOVES, "returns"),
}


@pytest.mark.parametrize("mutant", STARVING)
def test_mutant_starves_somebody(mutant: str, tmp_path: Path) -> None:
    model, claim = STARVING[mutant]
    fewer = ["FAULTS=0"] if model is ROUNDS else []
    build(tmp_path, [*fewer, f"MUTANT_{mutant}"], model, FAIR)
    assert holds(tmp_path, "asserted")[0]
    assert not holds(tmp_path, claim)[0]
