# SPDX-License-Identifier: Apache-2.0
"""railweave as a back end of torch.distributed: three processes over loopback, without a controller."""

from __future__ import annotations

import importlib.util
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed")
RANKS = 3
DEADLINE_S = 240.0
WORKER = Path(__file__).with_name("torch_worker.py")
CHECKS = (  # of torch_worker.py. Processes start slowly, so each process runs several checks.
    "collectives,others,devices,futures,reports,late,destroyed,callbacks_at_the_end",
    "forked,callbacks_at_exit",
)


def run(checks: str, store: Path) -> list[tuple[int, str]]:
    """Run checks of torch_worker.py on all ranks. Return their exit statuses and output."""
    ranks = [
        subprocess.Popen(
            [sys.executable, WORKER, checks, store, str(rank), str(RANKS)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(RANKS)
    ]
    end = time.monotonic() + DEADLINE_S
    try:
        outputs = [rank.communicate(timeout=max(0.0, end - time.monotonic()))[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    return [(rank.returncode, output) for rank, output in zip(ranks, outputs, strict=True)]


@pytest.mark.parametrize("checks", CHECKS)
def test_ranks(checks: str, tmp_path: Path) -> None:
    for status, output in run(checks, tmp_path / "store"):
        assert status == 0, output


def test_a_store_that_a_crashed_run_has_left_can_be_used_again(tmp_path: Path) -> None:
    for checks in ("crashed", "reports"):
        for status, output in run(checks, tmp_path / "store"):
            assert status == 0, output


def test_a_rank_that_is_killed_is_named(tmp_path: Path) -> None:
    first, killed, last = run("lost", tmp_path / "store")
    assert killed[0] == -signal.SIGKILL
    for status, output in (first, last):
        assert status == 0, output
