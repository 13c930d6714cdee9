# SPDX-License-Identifier: Apache-2.0
"""`railweave run`: users' programs on the lab's hosts."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from commands import railweave
from system.command import Start

PROGRAM = """
import os, sys
import numpy as np
import railweave
with railweave.init() as comm:
    assert (comm.rank, comm.world_size) == (int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    x = np.full(1 << 18, comm.rank + 1, np.float32)
    down = False
    for _ in range(400):
        assert (comm.all_reduce(x) == 3).all()
        states = np.array([[rail.failures, rail.state == "up"] for rail in comm.stats().rails], np.int64)
        failed, up = comm.all_reduce(states, op="min")[0]  # of the first rail
        if failed and up:
            break
    print("the rail failed and is back" if failed and up else "no rail failed", file=sys.stderr)
"""
RUN = ("run", "--hosts", "2", "--rails", "ina,tcp")


def program(folder: Path, text: str) -> tuple[str, str, str]:
    file = folder / "program.py"
    file.write_text(text)
    return "--", sys.executable, str(file)


@pytest.mark.parametrize(
    ("rails", "fault"),
    [
        ("ina,tcp,rdma", "switch frozen s-ina"),
        ("tcp,rdma", "switch killed s-tcp"),
        ("rdma,tcp", "loss both ways h2 rdma"),
    ],
)
def test_a_program_runs_through_a_fault(start: Start, tmp_path: Path, rails: str, fault: str) -> None:
    """The agents' counts explain all bytes that leave the interfaces."""
    file = tmp_path / "r.json"
    command = start(
        *("run", "--hosts", "2", "--rails", rails, "--fault", f"500ms: {fault}; 1s: repair"),
        *("--json", str(file), *program(tmp_path, PROGRAM)),
    )
    said, phases = command.process.communicate()
    assert command.process.returncode == 0, phases
    for rank in range(2):
        assert f"[rank {rank}] the rail failed and is back" in said
    assert fault in phases
    assert f"repair {fault}" in phases
    assert "all counts agree" in said
    result = json.loads(file.read_text())
    assert (result["ok"], result["joined"]) == (True, [0, 1])
    assert result["rows"][0]["failures"] > 0
    for rail in result["rows"]:
        assert rail["agent_bytes"] > 0
        assert rail["sent"]["heartbeats"] > 0
        assert rail["sent"]["control"] > 0
        assert rail["sent"]["payload"] >= rail["payload_bytes"]
    assert sum(rail["sent"]["recovery"] for rail in result["rows"]) > 0
    assert (tmp_path / "out" / "1" / "timeline.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads((tmp_path / "out" / "1" / "trace.json").read_text())["traceEvents"]


def test_programs_without_railweave_run_in_its_python_without_an_activated_environment(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
    file = tmp_path / "my.py"
    file.write_text("import sys, railweave; print('runs in', sys.prefix, 'as', *sys.argv[1:])")
    script = f"exec python {file} $RANK of $WORLD_SIZE at $MASTER_ADDR"
    command = start(*RUN, "--join", "0", "--", "sh", "-c", script)
    said, complaint = command.process.communicate()
    assert command.process.returncode == 0, complaint
    for rank in range(2):
        assert f"[rank {rank}] runs in {sys.prefix} as {rank} of 2 at 10." in said
    assert "no rank has called railweave.init" in said


def test_a_python_without_railweave_is_named(start: Start, tmp_path: Path) -> None:
    other = tmp_path / "python3"
    other.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    other.chmod(0o755)
    file = tmp_path / "my.py"
    file.write_text("import railweave")
    code, complaint = start(*RUN, "--", str(other), str(file)).end()
    assert code == 1
    assert f"{other} runs a Python without railweave: expected {sys.executable}; write `python`" in complaint


def test_other_traffic_and_several_communicators_are_in_the_books(start: Start, tmp_path: Path) -> None:
    text = """
import socket
import numpy as np
import railweave

def connection(comm):
    if comm.rank == 0:
        with socket.create_server(("10.1.0.1", 7777)) as server:
            comm.barrier()
            return server.accept()[0]
    comm.barrier()
    return socket.create_connection(("10.1.0.1", 7777))

x = np.ones(1 << 18, np.float32)
for _ in range(2):
    with railweave.init() as comm, connection(comm) as other:
        comm.all_reduce(x)
        if comm.rank:
            other.sendall(bytes(1 << 20))
            other.shutdown(socket.SHUT_WR)
        while comm.rank == 0 and other.recv(1 << 16):
            pass
        with comm.split(color=0) as pair:
            whole = comm.all_reduce(x, async_op=True)
            assert (pair.all_reduce(x) == 2).all()
            assert (whole.wait() == 2).all()
"""
    file = tmp_path / "r.json"
    command = start(*RUN, "--json", str(file), *program(tmp_path, text))
    said, complaint = command.process.communicate()
    assert command.process.returncode == 0, said + complaint
    assert "all counts agree" in said
    ina, tcp = json.loads(file.read_text())["rows"]
    others = ina["others"]["tcp port 7777"]
    assert 2 << 20 < others < 1.1 * (2 << 20)
    assert "tcp port 7777" in said
    assert "tcp port 7777" not in tcp["others"]
    assert ina["payload_bytes"] + tcp["payload_bytes"] >= 6 << 20  # three calls in each of two jobs
    assert min(*ina["sent"].values(), *tcp["sent"].values()) >= 0


def test_a_failure_ends_all_and_is_named_once(start: Start, tmp_path: Path) -> None:
    text = """
import sys, railweave
with railweave.init() as comm:
    if comm.rank == 1:
        sys.exit(3)
    comm.barrier()
"""
    code, complaint = start(*RUN, *program(tmp_path, text)).end()
    assert code == 3
    assert complaint.count("h2 (rank 1) ended with status 3") == 1


def test_ranks_that_never_call_init_are_named(start: Start, tmp_path: Path) -> None:
    text = "import threading; threading.Event().wait()"
    command = start(*RUN, "--join", "0.5", *program(tmp_path, text))
    code, complaint = command.end()
    assert code == 1
    assert "rank 0 (h1), rank 1 (h2)" in complaint
    assert not command.records


def test_mininets_prompt_opens_in_the_running_lab(tmp_path: Path) -> None:
    options = ("--shell", "--hosts", "2", "--rails", "tcp", "--out", tmp_path)
    done = railweave("run", *options, input="h1 ping -c 1 -W 5 h2\nexit\n")
    assert "1 received" in done.stderr  # Mininet's prompt writes to stderr
