# SPDX-License-Identifier: Apache-2.0
"""BMv2 as a child process: options that BMv2 would ignore are refused, and its last line is reported."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from railweave.switch import bmv2
from railweave.switch.errors import SwitchError
from railweave.switch.impairment import Impairment
from railweave.switch.options import SwitchOptions, Tls

ONE: Mapping[int, str] = {1: "lo"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"interfaces": {1: "nowhere0"}}, "no interface nowhere0"),
        (
            {"impairments": {(1, "out"): Impairment(loss=0.1)}},
            "--impair with --target bmv2: expected --target embedded, which",
        ),
        ({"interfaces": {1: "lo", 2: "lo"}, "pcap": {1: Path("x")}}, "all ports or none"),
        ({"program": Path("x.json")}, "--program with --target bmv2: expected a program pushed by a"),
        ({"cpu_port": 0}, "--cpu-port 0 with --target bmv2: expected 1 or more, because 0 means none"),
        ({"tls": Tls(Path("no.pem"), Path("no.key"))}, "--tls-key no.key: No such file"),
    ],
)
def test_what_it_cannot_do_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(SwitchError, match=words):
        bmv2.check(SwitchOptions(**({"interfaces": ONE} | options)))


def test_an_address_or_a_socket_file_in_use_is_named(tmp_path: Path) -> None:
    (tmp_path / "grpc").write_text("")
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        for grpc, words in (
            (address, f"--grpc {address}: Address already in use"),
            (f"unix:{tmp_path}/grpc", "the file exists: expected a socket of no other switch"),
        ):
            with pytest.raises(SwitchError, match=words):
                bmv2.check(SwitchOptions(ONE, grpc=grpc))


def test_it_captures_all_ports(tmp_path: Path) -> None:
    options = SwitchOptions(ONE, pcap={1: tmp_path})
    bmv2.check(SwitchOptions(ONE, grpc="127.0.0.1:0", pcap={1: tmp_path}))
    assert f"--pcap={tmp_path}" in bmv2.command(options)


def test_its_last_complaint_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "simple_switch_grpc"
    program.write_text("#!/bin/sh\necho Adding interface\necho Invalid JSON\necho bye\nexit 3\n")
    program.chmod(0o755)
    monkeypatch.setattr(bmv2, "PROGRAM", str(program))
    with pytest.raises(SwitchError, match=r"ended with status 3: Invalid JSON"):
        asyncio.run(bmv2.run(SwitchOptions(ONE, grpc=f"unix:{tmp_path}/grpc"), lambda _: None))
    printed = capfd.readouterr().err
    assert "Adding interface\n" in printed
    assert f"railweave switch: {program}: Invalid JSON" in printed


# A replacement for BMv2: it writes its arguments to a file, listens at its address, and ends at SIGTERM.
STAND_IN = f"""#!{sys.executable}
import json, pathlib, signal, socket, sys
signal.pthread_sigmask(signal.SIG_BLOCK, {{signal.SIGTERM}})
pathlib.Path(sys.argv[0] + ".arguments").write_text(json.dumps(sys.argv[1:]))
server = socket.socket(socket.AF_UNIX)
server.bind(sys.argv[sys.argv.index("--grpc-server-addr") + 1].removeprefix("unix:"))
server.listen()
signal.sigwait({{signal.SIGTERM}})
"""


@pytest.mark.parametrize("asked", [True, False], ids=["all options", "none"])
def test_no_option_is_passed_over_and_none_is_made_up(tmp_path: Path, *, asked: bool) -> None:
    program = tmp_path / "simple_switch_grpc"
    program.write_text(STAND_IN)
    program.chmod(0o755)
    cert, key, ca = (str(tmp_path / name) for name in ("cert", "key", "ca"))
    for name in (cert, key, ca):
        Path(name).write_text("")
    Path(key).chmod(0o600)
    given = ["--cpu-port", "64", "--priority-queues", "8"]
    given += ["--tls-cert", cert, "--tls-key", key, "--tls-ca", ca]
    expected = [
        *("--priority-queues", "8"),
        *("--cpu-port", "64", "--grpc-server-ssl", "--grpc-server-cert", cert, "--grpc-server-key", key),
        *("--grpc-server-cacert", ca, "--grpc-server-with-client-auth"),
    ]
    address = f"unix:{tmp_path}/grpc"
    command = [sys.executable, "-m", "railweave.switch", "--target", "bmv2", "-i", "1@lo", "--grpc", address]
    with subprocess.Popen(
        [*command, *(given if asked else [])],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"},
    ) as switch:
        assert switch.stdout is not None
        assert switch.stdout.readline().startswith("ready ")
        switch.terminate()
    assert switch.returncode == 0
    arguments: list[str] = json.loads(program.with_suffix(".arguments").read_text())
    of_the_target = arguments[arguments.index("--") + 1 :]
    assert of_the_target[:2] == ["--grpc-server-addr", address]
    assert of_the_target[2:] == (expected if asked else ["--priority-queues", "1"])
