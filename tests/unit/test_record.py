# SPDX-License-Identifier: Apache-2.0
"""Run records: a sweep ends only the processes of a killed run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from railweave.topologies.lab.record import Identity, RunRecord, sweep

WAIT = [sys.executable, "-c", "import sys; sys.stdin.read()"]


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    child = subprocess.Popen(WAIT, stdin=subprocess.PIPE)
    yield child
    child.kill()
    child.wait()


def record_of_a_dead_owner(folder: Path, processes: list[Identity]) -> Path:
    """Write the record of a killed lab. The lab's own process has ended and its parent has reaped it."""
    owner = subprocess.Popen(WAIT, stdin=subprocess.PIPE)
    identity = Identity.of("railweave", owner.pid)
    owner.kill()
    owner.wait()
    path = folder / "record.json"
    content = {"owner": vars(identity), "out": "/somewhere", "processes": [vars(one) for one in processes]}
    path.write_text(json.dumps(content))
    return path


def test_leftovers_are_ended_and_named(tmp_path: Path, process: subprocess.Popen[bytes]) -> None:
    path = record_of_a_dead_owner(tmp_path, [Identity.of("switch s-ina", process.pid)])
    (found,) = sweep(tmp_path)
    assert process.wait(10) == -9
    assert "switch s-ina" in str(found)
    assert str(process.pid) in str(found)
    assert not path.exists()
    assert sweep(tmp_path) == []


def test_a_process_that_only_has_the_number_is_left_alone(
    tmp_path: Path, process: subprocess.Popen[bytes]
) -> None:
    identity = Identity.of("switch", process.pid)
    other = Identity("switch", identity.pid, identity.start_ticks - 1)
    record_of_a_dead_owner(tmp_path, [other])
    (found,) = sweep(tmp_path)
    assert found.killed == ()
    assert process.poll() is None


def test_a_lab_that_lives_is_left_alone(tmp_path: Path, process: subprocess.Popen[bytes]) -> None:
    record = RunRecord(tmp_path / "out", tmp_path)
    record.add("switch", process.pid)
    assert sweep(tmp_path) == []
    assert process.poll() is None
    record.remove()
    assert list(tmp_path.glob("*.json")) == []


@pytest.mark.parametrize("text", ["", "{", "[]", '{"owner": 1}', '{"owner": {"pid": 1}}'])
def test_records_that_are_no_records_are_left_alone(tmp_path: Path, text: str) -> None:
    (tmp_path / "broken.json").write_text(text)
    assert sweep(tmp_path) == []


def test_who_has_ended_has_no_identity(process: subprocess.Popen[bytes]) -> None:
    identity = Identity.of("child", process.pid)
    assert identity.alive()
    process.kill()
    process.wait()
    assert not identity.alive()
    with pytest.raises(ProcessLookupError):
        Identity.of("child", process.pid)


def test_a_zombie_is_not_alive() -> None:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    try:
        with pytest.raises(ProcessLookupError):
            Identity.of("zombie", child)
    finally:
        os.waitpid(child, 0)
