# SPDX-License-Identifier: Apache-2.0
"""A disk that fills up during a measurement: one line says so, and the same command can continue later."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from commands import run

# A private file system that ends with the command. It grows before the second run.
TWICE = """
mount -t tmpfs -o size={room} tmpfs {out} || exit 9
"$@"; first=$?
mount -o remount,size=64m,nr_inodes=0 {out} || exit 9
"$@"; echo "ended with $first and then $?"
"""


@pytest.mark.parametrize("room", ["12k", "64k,nr_inodes=7"])
def test_a_measurement_on_a_full_disk_says_so_and_goes_on(tmp_path: Path, room: str) -> None:
    out = tmp_path / "out"
    out.mkdir()
    script = TWICE.format(room=room, out=out)
    sizes = ("--rails", "tcp", "--hosts", "2", "--sizes", "4K", "--iters", "3", "--warmup", "0")
    command = (sys.executable, "-m", "railweave", "bench", "all-reduce", *sizes, "--out", out)
    done = run("unshare", "--mount", "sh", "-c", script, "sh", *command)
    assert "Traceback" not in done.stderr, done.stderr
    assert "No space left on device" in done.stderr
    # Status 1: a rank found no room on the disk, and its run failed.
    assert done.stdout.splitlines()[-1] in {"ended with 3 and then 0", "ended with 1 and then 0"}
