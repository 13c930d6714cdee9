# SPDX-License-Identifier: Apache-2.0
"""Spin checks all states of the model of the slot algorithm, and refutes mutants of it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

SLOTS = Path(__file__).parent / "models" / "slots.pml"
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


def search(folder: Path, definitions: str) -> tuple[int, int]:
    """Search for violated assertions and for deadlocks. Return (errors, states stored)."""
    model = _run(["cpp", "-P", *(f"-D{d}" for d in definitions.split()), str(SLOTS)], folder)
    (folder / "model.pml").write_text(model)
    _run(["spin", "-a", "model.pml"], folder)
    _run(["gcc", "-O2", "-w", "-DCOLLAPSE", "-DSAFETY", "-o", "pan", "pan.c"], folder)
    report = _run(["./pan", "-m100000"], folder)
    assert "max search depth too small" not in report or "errors: 0" not in report, report
    found = re.search(r"errors: (\d+)\s+(\d+) states, stored", report)
    assert found, report
    return int(found[1]), int(found[2])


@pytest.mark.parametrize("definitions", ["LEVELS=1 HOSTS=4", "LEVELS=2 HOSTS=5", "LEVELS=2 HOSTS=4 OWNERS"])
def test_no_assertion_is_violated_and_nobody_waits_forever(
    definitions: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    errors, states = search(tmp_path, definitions)
    assert errors == 0
    record_property("summary", f"spin: slots with {definitions}: {states} states, exhausted")


MUTANTS = {
    **dict.fromkeys(
        ("NEVER_ENDS", "NO_TAG_CHECK", "ONE_COPY", "UNSIGNED_SERIALS", "NO_SEEN"), "LEVELS=1 HOSTS=2"
    ),
    **dict.fromkeys(("NO_RESULT_PRESENT", "RESULT_WITHOUT_TAG"), "LEVELS=2 HOSTS=3"),
    "SUM_FOR_ALL": "LEVELS=2 HOSTS=4 OWNERS",
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_mutant_is_refuted(mutant: str, tmp_path: Path) -> None:
    errors, _ = search(tmp_path, f"{MUTANTS[mutant]} MUTANT_{mutant}")
    assert errors > 0
