# SPDX-License-Identifier: Apache-2.0
"""`railweave controller` as a process: its ready line, its end, and its errors."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from controller_world import at_address, running_switch
from typer.testing import CliRunner

from railweave.controller.cli import app
from railweave.topologies.planes import planes
from railweave.topologies.serialize import to_yaml

CLUSTER = """
controller: localhost:9600
planes: {tcp: {network: 10.2.0.0/24}}
hosts: {alpha: {tcp: 10.2.0.1}, beta: {tcp: 10.2.0.2}}
"""
PROGRAM = "from railweave.controller.cli import app; app()"


def topology_file(folder: Path, port: int) -> Path:
    path = folder / "topology.yaml"
    path.write_text(to_yaml(at_address(planes(2, ("ina", "tcp")), port)))
    return path


@pytest.mark.parametrize(
    ("number", "device", "options", "losses"),
    [
        (signal.SIGTERM, 1, ("--lanes", "64"), 0),
        (signal.SIGINT, 0, ("--device-id", "0", "--loss", "ina=0.25:egress"), 2),
    ],
)
async def test_it_says_when_it_is_ready_and_ends_cleanly(
    tmp_path: Path, number: signal.Signals, device: int, options: tuple[str, ...], losses: int
) -> None:
    async with running_switch(device_id=device) as switch:
        given = ("--topology", str(topology_file(tmp_path, switch.port)), "--listen", "127.0.0.1:0")
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", PROGRAM, *given, *options),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        line = await process.stdout.readline()
        assert line.startswith(b"ready listen=127.0.0.1:")
        assert int(line.rpartition(b":")[2]) > 0
        assert len(switch.table("mac_table")) == 2
        assert len(switch.table("injector_egress")) == losses
        process.send_signal(number)
        out, err = await process.communicate()
        assert (process.returncode, out, err) == (0, b"", b"")


def check_refusals(*cases: tuple[object, ...]) -> None:
    """Check that the command refuses the arguments of each case in words that contain the case's text."""
    for text, *arguments in cases:
        done = CliRunner().invoke(app, [str(argument) for argument in arguments])
        assert (done.exit_code, str(text) in done.stderr) == (2, True), done.stderr


def test_errors_are_named(tmp_path: Path) -> None:
    good = topology_file(tmp_path, 1)
    (bad := tmp_path / "bad.yaml").write_text("name: [")
    (by_name := tmp_path / "cluster.yaml").write_text(CLUSTER)
    anywhere = ("--listen", "127.0.0.1:0")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        busy = f"127.0.0.1:{taken.getsockname()[1]}"
        check_refusals(
            ("none.yaml: ", "--topology", tmp_path / "none.yaml"),
            ("bad.yaml: not YAML", "--topology", bad),
            (f"cannot listen on {busy}", "--topology", good, "--listen", busy),
            ("switch s-ina at 127.0.0.1:1: ", "--topology", good, "--switch-deadline", 0.3, *anywhere),
            ("lanes", "--topology", good, "--lanes", 7),
            ("on this machine: expected an address that other machines can reach", "--cluster", by_name),
            ("link h1 to s-ina has an MTU of 1500: expected 4140", "--topology", good, "--lanes", 1024),
            ("--slots 100", "--topology", good, "--slots", 100),
            ("--loss 'ina'", "--topology", good, "--loss", "ina"),
        )
