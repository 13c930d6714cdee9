# SPDX-License-Identifier: Apache-2.0
"""Spin checks all states of the models: slots, moves, multicast, RDMA sums, rounds. It refutes mutants."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

MODELS = Path(__file__).parent / "models"
NAMES = ("slots", "moves", "rounds", "spread", "netreduce")
SLOTS, MOVES, ROUNDS, SPREAD, NETREDUCE = (MODELS / f"{name}.pml" for name in NAMES)
DEADLINE_S = 120
MISSING = [tool for tool in ("spin", "gcc", "cpp") if shutil.which(tool) is None]

pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"model checker: {', '.join(MISSING)} not on PATH")

ONE_LEVEL = ["LEVELS=1", "HOSTS=2"]
TWO_LEVELS = ["LEVELS=2", "HOSTS=3"]


def _run(command: list[str], folder: Path) -> str:
    # Run without a preloaded sanitizer, because spin's generated code reads beyond the end of its memory.
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=DEADLINE_S, check=False, env=environment
    )
    assert done.returncode == 0, f"{command[0]} failed: {done.stdout}{done.stderr}"
    return done.stdout


def build(folder: Path, definitions: list[str], model_of: Path, *options: str) -> None:
    """Build a model's checker `folder`/pan.

    Most searches take less time than an optimising compiler. The option -O2 is for the others.
    """
    model = _run(["cpp", "-P", *(f"-D{d}" for d in definitions), str(model_of)], folder)
    (folder / "model.pml").write_text(model)
    _run(["spin", "-a", "model.pml"], folder)
    _run(["gcc", "-w", "-DCOLLAPSE", *options, "-o", "pan", "pan.c"], folder)


def check(folder: Path, *options: str) -> tuple[int, int]:
    """Search all states with the checker that `build` has made. Return (errors, states stored)."""
    report = _run(["./pan", "-m100000", *options], folder)
    assert "max search depth too small" not in report or "errors: 0" not in report, report
    found = re.search(r"errors: (\d+)\s+(\d+) states, stored", report)
    assert found, report
    return int(found[1]), int(found[2])


def search(folder: Path, definitions: list[str], model_of: Path, *options: str) -> tuple[int, int]:
    """Search for violated assertions and for deadlocks. Return (errors, states stored)."""
    build(folder, definitions, model_of, "-DSAFETY", *options)
    return check(folder)


def words(value: object) -> str:
    """Return the name of a parameter for pytest."""
    return " ".join(value) if isinstance(value, list) else getattr(value, "stem", str(value))


SMALL = [
    *((SLOTS, definitions) for definitions in (ONE_LEVEL, ["LEVELS=1", "HOSTS=4"])),
    *((SLOTS, definitions) for definitions in (TWO_LEVELS, ["LEVELS=2", "HOSTS=5"])),
    (SLOTS, ["LEVELS=1", "HOSTS=3", "OWNERS"]),
    (SLOTS, ["LEVELS=2", "HOSTS=4", "OWNERS"]),
    (NETREDUCE, ["MEMBERS=2"]),
    (NETREDUCE, ["MEMBERS=4"]),
    (NETREDUCE, ["MEMBERS=2", "FORGETS=2"]),
    (NETREDUCE, ["LEVELS=2", "MEMBERS=2"]),
    (NETREDUCE, ["LEVELS=2", "MEMBERS=4"]),
]
LARGE = [  # 90,000 states and more
    (MOVES, ["HOSTS=2", "S=2", "CHUNKS=5"]),
    (MOVES, ["HOSTS=3", "S=1", "CHUNKS=4"]),
    (MOVES, ["HOSTS=2", "S=1", "CHUNKS=4", "MOVES=1", "HALTS=2"]),
    (ROUNDS, ["HOSTS=2", "EPOCHS=2", "CALLS=2"]),
    (ROUNDS, ["HOSTS=3", "EPOCHS=1", "CALLS=2"]),
    (SPREAD, ["HOSTS=3", "TASKS=2", "LOSSES=0"]),
    (SPREAD, ["HOSTS=2", "TASKS=2", "CHUNKS=2"]),
    (NETREDUCE, ["LEVELS=2", "MEMBERS=3", "FORGETS=1", "MESSAGES=4"]),
]


@pytest.mark.parametrize(("model", "definitions"), [*SMALL, *LARGE], ids=words)
def test_no_assertion_is_violated_and_nobody_waits_forever(
    model: Path, definitions: list[str], tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    errors, states = search(tmp_path, definitions, model, *(["-O2"] if (model, definitions) in LARGE else []))
    assert errors == 0
    what = f"{model.stem} with {' '.join(definitions)}"
    record_property("summary", f"spin: {what}: {states} states, exhausted")


MOVING, HALTING = ["HOSTS=2", "S=2", "CHUNKS=5"], ["HOSTS=2", "S=1", "CHUNKS=5", "MOVES=1", "HALTS=1"]
MUTANTS: list[tuple[Path, list[str], str]] = [
    (SLOTS, ONE_LEVEL, "NEVER_ENDS NO_TAG_CHECK ONE_COPY UNSIGNED_SERIALS NO_SEEN"),
    (SLOTS, TWO_LEVELS, "NEVER_ENDS NO_RESULT_PRESENT RESULT_WITHOUT_TAG"),
    (SLOTS, ["LEVELS=2", "HOSTS=4", "OWNERS"], "SUM_FOR_ALL"),
    (MOVES, MOVING, "NEVER_ENDS KEEP_ONE_WINDOW OWN_POSITION POSITION_OF_ONE SAME_GROUP"),
    (MOVES, HALTING, "OWN_MARK TAKES_VOID RESUMES_VOID"),
    (
        *(ROUNDS, ["HOSTS=2"]),
        "NEVER_ENDS ANY_ORDER SUBMITS_WHILE_FROZEN BOUNDARY_OF_ONE ANY_ATTEMPT ANSWER_OF_ONE",
    ),
    (
        *(SPREAD, ["HOSTS=3", "TASKS=2", "LOSSES=0"]),
        "NEVER_ENDS NEVER_ASKS ANY_TASK FORGETS_WHEN_DONE OWN_UNFINISHED ANSWERS_WHEN_DONE NO_READY",
    ),
    (
        *(NETREDUCE, ["MEMBERS=2"]),
        "NEVER_ENDS ONE_WINDOW_OF_SLOTS WIDE_WINDOW UNSIGNED_INDICES NO_INDEX_CHECK NO_EPOCH NO_SEEN "
        "HEADER_OF_THE_FIRST",
    ),
    (NETREDUCE, ["LEVELS=2", "MEMBERS=3"], "NEVER_ENDS RESULT_IS_ADDED"),
    (
        *(NETREDUCE, ["LEVELS=2", "MEMBERS=3", "FORGETS=1", "MESSAGES=4"]),
        "ADDED_TO_THE_RESULT EARLY_RESULT_GOES_ON",
    ),
]


@pytest.mark.parametrize(
    ("model", "definitions", "mutant"),
    [(model, definitions, mutant) for model, definitions, some in MUTANTS for mutant in some.split()],
    ids=words,
)
def test_mutant_is_refuted(model: Path, definitions: list[str], mutant: str, tmp_path: Path) -> None:
    errors, _ = search(tmp_path, [*definitions, f"MUTANT_{mutant}"], model)
    assert errors > 0
