# SPDX-License-Identifier: Apache-2.0
"""Fabrics in a lab in which only some racks aggregate. `test_moves.py` has switches of three levels."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from system.command import Start

PROGRAM = """
import sys
import numpy as np
import railweave
with railweave.init() as comm:
    numbers = [np.random.default_rng(rank).standard_normal(100_000).astype(np.float32) for rank in range(4)]
    for count in (1, 1000, 100_000):
        got = comm.all_reduce(numbers[comm.rank][:count])
        exact = np.sum([values[:count].astype(np.float64) for values in numbers], axis=0)
        assert np.abs(got - exact).max() < 1e-5
        assert (comm.all_gather(got).reshape(4, count) == got).all()
    whole = comm.all_reduce(np.full(999, 2**30 + comm.rank, np.int32))
    assert (whole == np.int32(6)).all()
    (ina,) = comm.stats().rails
    print(f"{ina.ring_messages / ina.rings if ina.rings else 0:g} steps", file=sys.stderr)
"""


@pytest.mark.parametrize(
    ("topology", "steps"),
    [
        ("racks:racks=2,hosts=2,ina=1", 4),
        ("racks:racks=2,hosts=2,ina=2", 2),
        ("racks:racks=2,hosts=2,ina=2,spine=ina", 0),
    ],
)
def test_every_upgraded_rack_saves_steps(start: Start, tmp_path: Path, topology: str, steps: int) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    command = start(
        *("run", "--topology", topology, "--rails", "ina", "--", sys.executable, str(program)),
    )
    said, phases = command.process.communicate()
    assert command.process.returncode == 0, phases
    for rank in range(4):
        assert f"[rank {rank}] {steps} steps" in said
