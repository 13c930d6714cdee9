# SPDX-License-Identifier: Apache-2.0
"""On kernels before Linux 6.2, RDMA rails send packet by packet, and the doctor says so."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import commands
import pytest

TESTS = Path(__file__).parents[1]
STAND_IN = TESTS / "system/stand_ins/old_kernel.c"

pytestmark = pytest.mark.skipif(
    "ASAN_OPTIONS" in os.environ, reason="the sanitizer's library must be preloaded first"
)


@pytest.fixture(scope="module")
def old_kernel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler (cc)")
    library = tmp_path_factory.mktemp("old") / "old_kernel.so"
    commands.run(compiler, "-shared", "-fPIC", "-o", library, STAND_IN)
    return library


def run(what: str, preload: Path | None = None) -> dict[str, Any]:
    environment = os.environ | ({"LD_PRELOAD": str(preload)} if preload else {})
    done = commands.python("-m", "system.old_kernel", what, cwd=TESTS, env=environment)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_super_packets_that_the_kernel_refuses_leave_as_single_packets(old_kernel: Path) -> None:
    told = run("sums", old_kernel)
    assert told["right"]
    assert told["refused"] > 0
    assert told["counted"] == told["sent"]


def test_the_doctor_says_that_the_kernel_refuses_them(old_kernel: Path) -> None:
    found = run("doctor", old_kernel)
    assert not found["present"]
    assert not found["needed"]
    assert "refuses" in found["detail"]
    assert "Linux 6.2" in found["remedy"]


def test_here_it_takes_them() -> None:
    kernel = tuple(map(int, os.uname().release.split(".")[:2]))
    if kernel < (6, 2):
        pytest.skip("this kernel is older")
    assert run("doctor")["present"]
    assert run("sums")["refused"] == 0
