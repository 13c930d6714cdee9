# SPDX-License-Identifier: Apache-2.0
"""The embedded switch in place of simple_switch_grpc: its program, captures, log and P4Runtime answers."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from dataplane import wire
from dataplane.control import GrpcControl
from dataplane.harness import process
from dataplane.programs import PATCH
from finsy.proto import p4r, p4r_grpc
from typer.testing import CliRunner

from railweave.switch.cli import app

DEADLINE_S = 20.0
FRAME = bytes(range(60))

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces and raw sockets need root")


@contextlib.contextmanager
def switch(namespace: str, folder: Path, *options: str) -> Iterator[str]:
    """Run the switch with two ports. Yield the address of its P4Runtime server."""
    address = f"unix:{folder}/grpc"
    command = [sys.executable, "-m", "railweave.switch.simple_switch_grpc", "-i", "1@s1", "-i", "2@s2"]
    command += [*options, "--", "--grpc-server-addr", address]
    with process(["ip", "netns", "exec", namespace, *command], folder / "errors"):
        yield address


def forwards(namespace: str) -> bool:
    """Return whether a frame that enters at port 1 leaves at port 2."""
    ends = wire.in_namespace(namespace, lambda: [wire.packet_socket("h1"), wire.packet_socket("h2")])
    deadline = time.monotonic() + DEADLINE_S
    with ends[0], ends[1]:
        ends[0].send(FRAME)
        while select.select([ends[1]], [], [], max(0.0, deadline - time.monotonic()))[0]:
            if wire.receive(ends[1]) == FRAME:
                return True
    return False


def config(address: str) -> p4r.ForwardingPipelineConfig:
    """Return the running config of device 0."""
    with grpc.insecure_channel(address) as channel:
        request = p4r.GetForwardingPipelineConfigRequest(device_id=0)
        return p4r_grpc.P4RuntimeStub(channel).GetForwardingPipelineConfig(request, timeout=DEADLINE_S).config


def test_a_program_runs_without_p4info_and_captures_are_overwritten(namespace: str, tmp_path: Path) -> None:
    capture = tmp_path / "s2_out.pcap"
    capture.write_text("of an earlier run")
    with switch(namespace, tmp_path, f"--pcap={tmp_path}", str(PATCH.json)) as address:
        assert forwards(namespace)
        with pytest.raises(grpc.RpcError) as refusal:
            config(address)
        assert refusal.value.code() == grpc.StatusCode.FAILED_PRECONDITION
    assert FRAME in capture.read_bytes()
    assert b"of an earlier run" not in capture.read_bytes()


def test_a_program_is_pushed_to_device_0(namespace: str, tmp_path: Path) -> None:
    options = ("--no-p4", "--log-file", str(tmp_path / "log"), "--thrift-port", "9090")
    with switch(namespace, tmp_path, *options) as address:
        with pytest.raises(grpc.RpcError) as refusal:
            config(address)
        assert refusal.value.code() == grpc.StatusCode.FAILED_PRECONDITION
        with contextlib.closing(GrpcControl(address, device_id=0)) as control:
            control.load(PATCH.schema)
        assert config(address).p4_device_config
        stats = ["stats", "--grpc", address, "--device-id", "0", "--interval", "0"]
        assert "s1" in CliRunner().invoke(app, stats).output
        assert forwards(namespace)
    assert "[railweave] [I] program " in (tmp_path / "log.txt").read_text()
    assert "Thrift is not served" in (tmp_path / "errors").read_text()
