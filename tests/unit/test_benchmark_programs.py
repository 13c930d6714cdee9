# SPDX-License-Identifier: Apache-2.0
"""The compiled programs of the benchmark match their sources."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from railweave.benchmarks.programs import BUILD, PROGRAMS, compile_all, hashes
from railweave.p4src.artifacts import SOURCES_RECORD
from railweave.p4src.compile import COMPILER, compiler_version

RECORD = (BUILD / SOURCES_RECORD).read_text()


def test_the_compiled_programs_were_made_from_these_sources() -> None:
    recorded = [line for line in RECORD.splitlines() if not line.startswith("#")]
    assert recorded == hashes().splitlines(), (
        "the P4 sources or the compiled programs have changed: run `make p4`"
    )


@pytest.mark.skipif(shutil.which(COMPILER) is None, reason=f"{COMPILER} is not installed")
def test_the_same_compiler_makes_the_same_programs(tmp_path: Path) -> None:
    if not RECORD.startswith(f"# {compiler_version()}\n"):
        pytest.skip(f"{COMPILER} is of another version than the compiled programs")
    compile_all(tmp_path)
    assert (tmp_path / SOURCES_RECORD).read_text() == RECORD
    for program in PROGRAMS:
        assert (tmp_path / program.json_path.name).read_bytes() == program.json_path.read_bytes()
