# SPDX-License-Identifier: Apache-2.0
"""A run leaves nothing behind after Ctrl-C, SIGTERM, SIGKILL, or the death of a host or service."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from system.command import Command

PROGRAM = """
import numpy as np
import railweave

with railweave.init() as comm:
    comm.barrier()
    print("runs", flush=True)
    while True:
        comm.all_reduce(np.ones(100_000, np.float32))
"""
LONG = ("run", "--hosts", "3", "--rails", "tcp", "--rate", "20M", "--", sys.executable, "-c", PROGRAM)
DEMO = ("demo", "--hosts", "3", "--rails", "tcp", "--rate", "20M", "--steps", "100000")
NODES = 3 + 2 + 1  # namespaces of the hosts, of two bridges (plane, management) and of the controller


def namespaces() -> set[str]:
    """Return the network namespaces of all processes."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/ns/net"):
        try:
            found.add(str(path.readlink()))
        except OSError:  # the process has ended
            continue
    return found


def test_a_signal_takes_all_down_within_five_seconds(start: Callable[..., Command]) -> None:
    command = start(*LONG)
    command.until("runs")
    processes = command.processes()
    assert len([one for one in processes.values() if one.alive()]) == NODES + 1 + 3  # controller, workers
    nodes = [one.pid for name, one in processes.items() if name.startswith("namespace")]
    own = {str(Path(f"/proc/{pid}/ns/net").readlink()) for pid in nodes}
    assert len(own) == NODES
    begin = time.monotonic()
    command.process.send_signal(signal.SIGTERM)
    code, complaint = command.end()
    assert time.monotonic() - begin < 5
    assert code == 143
    assert "terminated" in complaint
    assert "Traceback" not in complaint
    assert not [name for name, one in processes.items() if one.alive()]
    assert not namespaces() & own
    assert not command.records


def test_a_signal_while_the_network_is_made(start: Callable[..., Command]) -> None:
    command = start(*LONG)
    command.until_progress("making a network")
    command.process.send_signal(signal.SIGINT)
    code, complaint = command.end()
    assert code == 130
    assert "Traceback" not in complaint
    assert not command.records


MNEXEC = """#!/bin/sh
case "$*" in
*mininet:h2) echo > {waits}; while [ -e {waits} ]; do sleep 0.05; done ;;  # as if Ctrl-C had ended the shell
*) exec {real} "$@" ;;
esac
"""


def test_a_signal_ends_the_wait_for_a_shell(
    start: Callable[..., Command], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = tmp_path / "waits"
    os.mkfifo(waits)
    script = tmp_path / "mnexec"
    script.write_text(MNEXEC.format(waits=waits, real=shutil.which("mnexec")))
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    command = start(*LONG)
    waits.read_text()  # returns when the command waits for the shell
    try:
        command.process.send_signal(signal.SIGINT)
        code, complaint = command.end()
    finally:
        waits.unlink()
    assert code == 130
    assert "Traceback" not in complaint
    assert not command.records


def test_a_signal_while_one_process_trains_alone(start: Callable[..., Command]) -> None:
    command = start("demo", "--hosts", "2", "--rails", "tcp", "--rate", "0", "--steps", "20")
    command.until_progress("checking")
    begin = time.monotonic()
    command.process.send_signal(signal.SIGINT)
    code, complaint = command.end()
    assert time.monotonic() - begin < 5
    assert code == 130
    assert "Traceback" not in complaint


@pytest.mark.parametrize("name", ["h2 (rank 1)", "controller"])
def test_a_process_that_dies_is_named_and_ends_the_run(start: Callable[..., Command], name: str) -> None:
    command = start(*DEMO)
    command.until_progress("step")
    processes = command.processes()
    os.kill(processes[name].pid, signal.SIGKILL)
    code, complaint = command.end()
    assert code == 1
    assert f"{name} was killed by SIGKILL" in complaint
    if name != "controller":
        assert "ended with status 1: PeerLost: rank 1 is lost" in complaint
        assert all(survivor in complaint for survivor in ("h1 (rank 0)", "h3 (rank 2)"))
    assert "Traceback" not in complaint
    assert not [name for name, one in processes.items() if one.alive()]


def test_what_a_killed_run_leaves_is_found_by_the_next(start: Callable[..., Command]) -> None:
    killed = start(*LONG, alone=True)
    killed.until("runs")
    processes = killed.processes()
    killed.process.kill()
    killed.process.communicate()
    following = start(
        *("bench", "all-reduce", "--hosts", "2", "--rails", "tcp", "--sizes", "1K", "--iters", "2"),
        alone=True,
    )
    code, told = following.end()
    assert code == 0, told
    assert f"cleaned up after a run that was killed (pid {killed.process.pid}" in told
    assert not [name for name, one in processes.items() if one.alive()]
    assert not killed.records
