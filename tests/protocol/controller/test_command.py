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
from controller_world import at_address
from fake_switch import FakeSwitch

from railweave.topologies.planes import planes
from railweave.topologies.serialize import to_yaml

CLUSTER = """
controller: localhost:9600
planes: {tcp: {network: 10.2.0.0/24}}
hosts: {alpha: {tcp: 10.2.0.1}, beta: {tcp: 10.2.0.2}}
"""
PROGRAM = "from railweave.controller.cli import app; app()"


async def start(*arguments: object) -> asyncio.subprocess.Process:
    texts = [str(argument) for argument in arguments]
    return await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROGRAM, *texts, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


async def topology_file(folder: Path, port: int) -> Path:
    path = folder / "topology.yaml"
    path.write_text(to_yaml(at_address(planes(2, ("ina", "tcp")), port)))
    return path


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_it_says_when_it_is_ready_and_ends_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    switch = FakeSwitch()
    await switch.start()
    topology = await topology_file(tmp_path, switch.port)
    process = await start("--topology", topology, "--listen", "127.0.0.1:0", "--lanes", 64)
    line = await process.stdout.readline()
    assert line.startswith(b"ready listen=127.0.0.1:")
    assert int(line.rpartition(b":")[2]) > 0
    assert len(switch.table("mac_table")) == 2
    process.send_signal(number)
    out, err = await process.communicate()
    assert (process.returncode, out, err) == (0, b"", b"")
    await switch.stop()


async def test_device_id_and_loss_are_options(tmp_path: Path) -> None:
    switch = FakeSwitch(device_id=0)
    await switch.start()
    topology = await topology_file(tmp_path, switch.port)
    options = ("--device-id", 0, "--loss", "ina=0.25:egress", "--listen", "127.0.0.1:0")
    process = await start("--topology", topology, *options)
    assert (await process.stdout.readline()).startswith(b"ready")
    assert len(switch.table("injector_egress")) == 2
    process.terminate()
    await process.wait()
    await switch.stop()


async def fails(text: str, *arguments: object) -> None:
    process = await start(*arguments)
    _, err = await process.communicate()
    assert process.returncode == 2
    assert text in err.decode()
    assert "Traceback" not in err.decode()


async def test_errors_are_named(tmp_path: Path) -> None:
    good = await topology_file(tmp_path, 1)
    (bad := tmp_path / "bad.yaml").write_text("name: [")
    (by_name := tmp_path / "cluster.yaml").write_text(CLUSTER)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        busy = f"127.0.0.1:{taken.getsockname()[1]}"
        await asyncio.gather(
            fails("none.yaml: ", "--topology", tmp_path / "none.yaml"),
            fails("bad.yaml: not YAML", "--topology", bad),
            fails(f"cannot listen on {busy}", "--topology", good, "--listen", busy),
            fails(
                "switch s-ina at 127.0.0.1:1: ",
                "--topology",
                good,
                "--switch-deadline",
                0.3,
                "--listen",
                "127.0.0.1:0",
            ),
            fails("lanes", "--topology", good, "--lanes", 7),
            fails("on this machine: expected an address that other machines can reach", "--cluster", by_name),
            fails("link h1 to s-ina has an MTU of 1500: expected 4140", "--topology", good, "--lanes", 1024),
            fails("--slots 100", "--topology", good, "--slots", 100),
            fails("--loss 'ina'", "--topology", good, "--loss", "ina"),
        )
