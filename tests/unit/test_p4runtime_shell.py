# SPDX-License-Identifier: Apache-2.0
"""p4runtime-shell, a client that shares no code with us, on the P4Runtime server."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest
from p4runtime_clients import DEVICE, ENTITIES, Server, files
from typer.testing import CliRunner

from railweave import shell_environment
from railweave.commands.shell import app
from railweave.switch.pipeline import Pipeline

SESSION = Path(__file__).parent / "shell" / "session.py"
FRAME = bytes.fromhex("020000000001 020000000002 1234") + b"from the wire".rjust(60, b".")
PARTS = ["entries", "members_and_groups", "one_shot", "arrays", "replication", "packets_and_digests"]

if shell_environment.python() is None:
    pytest.skip(
        "p4runtime-shell's environment is absent: ./bootstrap shell makes it", allow_module_level=True
    )


async def test_a_session_uses_every_entity(server: Server) -> None:
    session = await asyncio.create_subprocess_exec(
        str(shell_environment.python()),
        SESSION,
        server.address,
        str(DEVICE),
        *files(ENTITIES),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert session.stdout is not None
    assert session.stderr is not None
    sent: list[tuple[int, bytes]] = []
    lines: list[str] = []
    async for line in session.stdout:
        lines.append(line.decode().strip())
        if lines[-1] == "send":
            _connect(server.pipelines[0], sent)
            assert server.pipelines[0].inject(5, FRAME) == []
    problem = (await session.stderr.read()).decode()
    assert (await session.wait(), problem) == (0, "")
    assert [line for line in lines if line in PARTS] == PARTS
    assert sent == [(6, b"to the wire".rjust(60, b"."))]


def _connect(pipeline: Pipeline, sent: list[tuple[int, bytes]]) -> None:
    pipeline.connect(lambda port, packet: sent.extend(pipeline.inject(port, packet)))


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        ((), 3, ["no switch answers", "nobody"]),
        (("--election-id", "7"), 2, ["'7'", "HIGH,LOW"]),
        (("--config", "x.json"), 2, ["P4INFO,JSON"]),
        (("--config", "/nowhere.p4info,x.json"), 2, ["/nowhere.p4info"]),
        (("--tls-cert", "/nowhere.pem"), 2, ["/nowhere.pem"]),
    ],
)
def test_the_command_names_mistakes(
    tmp_path: Path, arguments: tuple[str, ...], status: int, words: list[str]
) -> None:
    done = CliRunner().invoke(app, ["--grpc", f"unix:{tmp_path}/nobody", *arguments])
    assert done.exit_code == status
    for word in words:
        assert word in done.stderr


async def test_the_command_becomes_a_shell_that_reads_where_there_is_a_controller(server: Server) -> None:
    async with server.finsy(ENTITIES):
        shell = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "railweave", "shell"),
            *("--grpc", server.address, "--device-id", str(DEVICE)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await shell.communicate(b"print([t.name for t in tables])\n")
        assert "not the primary" in output.decode()
        assert "EntitiesIngress.hosts" in output.decode()
        assert shell.returncode == 0
