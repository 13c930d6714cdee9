# SPDX-License-Identifier: Apache-2.0
"""Links that damage packets: every number is right, and a user sees the count of damaged packets."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from system.command import Start

SECONDS = 3
PROGRAM = f"""
import json, sys, time
import numpy as np
import railweave

def given(kind, rank, call):
    random = np.random.default_rng([call, rank])
    count = int(np.random.default_rng(call).integers(1, 60_000))
    match kind:
        case "wrapping":
            return random.integers(-(2**31), 2**31, count).astype(np.int32)
        case "integers":
            return random.integers(-1000, 1000, count).astype(np.int32)
        case "floats":
            return random.integers(-1000, 1000, count).astype(np.float32)
    return random.standard_normal(count).astype(np.float32)

SUMS = [("wrapping", "sum"), ("integers", "sum"), ("floats", "sum")]
CALLS = SUMS if sys.argv[1] == "ina" else [*SUMS, ("any", "max"), ("wrapping", "min")]
wrong = calls = 0
with railweave.init() as comm:
    end = time.monotonic() + {SECONDS}
    while not comm.all_reduce(np.array([time.monotonic() > end], np.int32))[0]:
        kind, op = CALLS[calls % len(CALLS)]
        every = np.stack([given(kind, rank, calls) for rank in range(comm.world_size)])
        wanted = {{"sum": np.add, "max": np.maximum, "min": np.minimum}}[op].reduce(every, dtype=every.dtype)
        got = comm.all_reduce(every[comm.rank], op=op)
        wrong += int((np.abs(got - wanted) > 1e-2).sum() if kind == "floats" else (got != wanted).sum())
        chosen = every[0].view(np.uint8)
        wrong += int((comm.broadcast(chosen if comm.rank == 0 else np.zeros_like(chosen)) != chosen).sum())
        calls += 1
    rails = comm.stats().rails
print(json.dumps([wrong, calls, sum(rail.malformed for rail in rails)]))
"""


@pytest.mark.parametrize(
    ("rails", "share"),
    [("ina,tcp", 0.01), ("ina", 0.1), ("netreduce,tcp", 0.01)],
)
def test_damaged_packets_change_no_number(start: Start, tmp_path: Path, rails: str, share: float) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    command = start(
        *("run", "--hosts", "3", "--rails", rails, "--rate", "100M", "--impair", f"corrupt={share}"),
        *("--", sys.executable, str(program), rails),
    )
    said, phases = command.process.communicate()
    assert command.process.returncode == 0, said + phases
    ranks = [json.loads(line.partition("] ")[2]) for line in said.splitlines() if line.startswith("[rank ")]
    assert len(ranks) == 3
    for wrong, calls, refused in ranks:
        assert wrong == 0
        assert calls >= (1 if share == 0.1 else 5)
        assert refused or rails == "netreduce,tcp"
