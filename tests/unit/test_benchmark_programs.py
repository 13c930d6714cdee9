# SPDX-License-Identifier: Apache-2.0
"""The programs of the benchmark: compiled from their sources, and the same as machine code."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from railweave.benchmarks.programs import BUILD, IN_PORT, PROGRAMS, Program, compile_all, hashes
from railweave.benchmarks.switch_links import loaded
from railweave.p4src.artifacts import SOURCES_RECORD
from railweave.p4src.compile import COMPILER, compiler_version
from railweave.switch import compiler

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


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
@pytest.mark.parametrize("program", PROGRAMS, ids=[program.name for program in PROGRAMS])
def test_damaged_packets_leave_interpreted_and_compiled_programs_alike(program: Program) -> None:
    interpreted, compiled = (loaded(program.files, program.updates) for _ in range(2))
    compiler.compiled(compiled.native)
    rng = random.Random(program.name)
    left = 0
    for _ in range(2000):
        packet = bytearray(program.frame)
        for _ in range(rng.choice((0, 0, 1, 2))):
            packet[rng.randrange(len(packet))] = rng.randrange(256)
        del packet[rng.choice((rng.randrange(len(packet)), len(packet), len(packet))) :]
        sent = bytes(packet)
        expected = interpreted.inject(IN_PORT, sent)
        assert compiled.inject(IN_PORT, sent) == expected, sent.hex()
        left += len(expected)
    assert left > 500
