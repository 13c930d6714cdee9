# SPDX-License-Identifier: Apache-2.0
"""Three machines with the kernel's rdma_rxe, whose WRITEs the switch sums: every number is checked there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from system.rxe import guest as rxe
from system.rxe.kernel import KernelMissing, find_kernel

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "railweave"
MEMBERS, MESSAGES, WINDOW, BYTES = 3, 1000, 4, 4096
LOSSES = (0.0, 0.001, 0.01)
PACKETS = MESSAGES * BYTES // 1024
DEADLINE_S = 580.0

Run = dict[str, Any]


@pytest.fixture(scope="module")
def runs() -> list[Run]:
    """What the machines and the switch say for each loss, and what the machines say without a sum."""
    if reason := rxe.missing():
        pytest.skip(reason)
    try:
        find_kernel(CACHE)
    except KernelMissing as error:
        pytest.skip(f"rxe test has no kernel: {error}")
    arguments = map(str, (MEMBERS, MESSAGES, WINDOW, BYTES, *LOSSES))
    done = subprocess.run(
        ["unshare", "--net", sys.executable, "-m", "system.rxe.ring", *arguments],
        cwd=Path(__file__).parents[1],
        env=os.environ | {"RXE_CACHE": str(CACHE)},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


@pytest.mark.parametrize("place", range(len(LOSSES)), ids=[f"loss {loss:.1%}" for loss in LOSSES])
def test_every_number_that_arrives_is_the_sum(runs: list[Run], place: int) -> None:
    run = runs[place]
    assert run["loss"] == LOSSES[place]
    assert run["said"] == [f"done 0 of {MESSAGES * BYTES // 4} wrong"] * MEMBERS
    counts = run["counts"]
    assert (counts["result"], counts["absorb"]) == (PACKETS, (MEMBERS - 1) * PACKETS)
    assert counts["bad_length"] == counts["bad_icrc"] == counts["mismatch"] == 0
    if run["loss"]:
        assert counts["repeat"] > 0


def test_what_is_not_summed_reaches_nobody(runs: list[Run]) -> None:
    assert runs[-1] == {"said": ["not done: 0 sent, 0 arrived"] * MEMBERS}
