# SPDX-License-Identifier: Apache-2.0
"""The embedded switch in place of simple_switch_grpc: its program, captures, log and P4Runtime answers."""

from __future__ import annotations

import contextlib
import os
import select
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest
import yaml
from dataplane import wire
from dataplane.control import GrpcControl
from dataplane.harness import process
from dataplane.programs import PATCH
from finsy.proto import p4r, p4r_grpc
from queue_program import priority_program, queue_program
from typer.testing import CliRunner

from railweave._rigs.ports import SharedLink
from railweave.switch.cli import app

ROOT = Path(__file__).parents[2]
DEADLINE_S = 20.0
FRAME = bytes(range(60))

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces and raw sockets need root")


@contextlib.contextmanager
def switch(
    namespace: str, folder: Path, *options: str, interfaces: tuple[str, str] = ("s1", "s2")
) -> Iterator[str]:
    """Run the switch with two ports. Yield the address of its P4Runtime server."""
    address = f"unix:{folder}/grpc"
    command = [sys.executable, "-m", "railweave.switch.simple_switch_grpc"]
    command += ["-i", f"1@{interfaces[0]}", "-i", f"2@{interfaces[1]}"]
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


def plug(namespace: str) -> None:
    """Add the switch's links, as containerlab does after the start of the container."""
    for port in (1, 2):
        link = ("link", "add", f"eth{port}", "type", "veth", "peer", "name", f"h{port}")
        wire.ip("-n", namespace, *link)
        for end in ("h", "eth"):
            wire.ip("-n", namespace, "link", "set", f"{end}{port}", "up")


def test_the_topology_for_containerlab_forwards(tmp_path: Path) -> None:
    topology = yaml.safe_load((ROOT / "examples/switch/two-hosts.clab.yml").read_text())["topology"]
    installed = tmp_path / "simple_switch_grpc"
    command = f'{sys.executable} -m railweave.switch.simple_switch_grpc "$@"'
    installed.write_text(f"#!/bin/sh\nexec {command} --grpc-server-addr unix:{tmp_path}/grpc\n")
    installed.chmod(0o755)
    with wire.namespace("lab") as name, ThreadPoolExecutor() as beside:
        plugged = beside.submit(plug, name)
        container = ["ip", "netns", "exec", name, "env", f"PATH={tmp_path}:{os.environ['PATH']}"]
        line = shlex.split(topology["nodes"]["s1"]["cmd"])
        with process([*container, *line], tmp_path / "errors"):
            plugged.result()
            with contextlib.closing(GrpcControl(f"unix:{tmp_path}/grpc", device_id=0)) as control:
                control.load(PATCH.schema)
            assert forwards(name)


@dataclass(frozen=True)
class Queued:
    """A packet that tells what it saw in the queue."""

    wait_us: int
    enq_qdepth: int
    deq_qdepth: int
    number: int

    @classmethod
    def of(cls, frame: bytes) -> Queued:
        numbers = (frame[1:5], frame[5:7], frame[7:8], frame[8:10])
        return cls(*(int.from_bytes(number, "big") for number in numbers))

    @staticmethod
    def frame(number: int) -> bytes:
        return bytes([10, *bytes(7)]) + number.to_bytes(2, "big") + bytes(190)


@pytest.fixture
def queue_looker(tmp_path: Path) -> str:
    program = tmp_path / "program.json"
    looks = {"address": "deq_timedelta", "number": "enq_qdepth", "group": "deq_qdepth"}
    program.write_bytes(queue_program(2, **looks))
    return str(program)


@contextlib.contextmanager
def slow_link(namespace: str, kernel_bytes: int) -> Iterator[None]:
    """Limit port 2 to 480 kbit/s, which is 300 frames a second; the kernel's queue has these bytes."""
    limit = ("tbf", "rate", "480kbit", "burst", "2000", "limit", str(kernel_bytes))
    wire.run("tc", "-n", namespace, "qdisc", "add", "dev", "s2", "root", *limit)
    try:
        yield
    finally:
        wire.run("tc", "-n", namespace, "qdisc", "delete", "dev", "s2", "root")


def burst(namespace: str, frames: list[bytes], ended: Callable[[list[bytes]], bool]) -> list[bytes]:
    """Send frames to port 1. Return those that come from port 2, until they have `ended`."""
    ends = wire.in_namespace(namespace, lambda: [wire.packet_socket("h1"), wire.packet_socket("h2")])
    deadline = time.monotonic() + DEADLINE_S
    received: list[bytes] = []
    with ends[0], ends[1]:
        ends[0].setblocking(True)
        for frame in frames:
            ends[0].send(frame)
        while not ended(received):
            assert select.select([ends[1]], [], [], max(0.0, deadline - time.monotonic()))[0], len(received)
            received += iter(lambda: wire.receive(ends[1]), None)
    return received


@pytest.mark.parametrize("kernel_bytes", [1_000_000, 3000])
def test_packets_for_a_slow_link_wait_in_the_switch(
    namespace: str, tmp_path: Path, queue_looker: str, kernel_bytes: int
) -> None:
    def ended(received: list[bytes]) -> bool:
        seen = [Queued.of(frame) for frame in received]
        return any(one.enq_qdepth > 32 for one in seen) and seen[-1].deq_qdepth == 0

    begun = time.monotonic()
    with slow_link(namespace, kernel_bytes), switch(namespace, tmp_path, queue_looker):
        frames = burst(namespace, [Queued.frame(number) for number in range(500)], ended)
    elapsed_us = (time.monotonic() - begun) * 1e6
    seen = [Queued.of(frame) for frame in frames]
    numbers = [one.number for one in seen]
    assert numbers == sorted(numbers)
    assert len(numbers) < 500  # more than the queue's 64 packets are dropped
    assert seen[0].enq_qdepth == 0
    assert 64 <= max(one.enq_qdepth for one in seen) <= 80  # and a batch that had passed egress
    assert [one.deq_qdepth for one in seen[-10:]] == list(range(9, -1, -1))
    assert 50_000 < seen[-1].wait_us - seen[-33].wait_us < seen[-1].wait_us < elapsed_us


def test_no_packet_is_lost_on_a_link_without_limit(namespace: str, tmp_path: Path, queue_looker: str) -> None:
    with switch(namespace, tmp_path, queue_looker):
        frames = [Queued.frame(number) for number in range(2000)]
        received = burst(namespace, frames, lambda received: len(received) == len(frames))
    assert [Queued.of(frame).number for frame in received] == list(range(2000))


def test_a_packet_of_higher_priority_overtakes_those_that_wait(namespace: str, tmp_path: Path) -> None:
    def ended(received: list[bytes]) -> bool:  # more packets have been overtaken than a batch has
        return 7 in [frame[1] for frame in received][:-32]

    program = tmp_path / "program.json"
    program.write_bytes(priority_program(2))
    frames = [bytes([0, priority, *bytes(198)]) for priority in [0] * 500 + [7] * 5]
    options = ("--priority-queues", "8")
    with slow_link(namespace, 1_000_000), switch(namespace, tmp_path, str(program), *options):
        received = burst(namespace, frames, ended)
    assert sum(frame[1] == 7 for frame in received) == 5


def test_ports_on_shared_memory_forward_packets(namespace: str, tmp_path: Path) -> None:
    names = tuple(f"shm:test-{os.getpid()}-{port}" for port in (1, 2))
    frames = [bytes([number % 256]) * (60 + number) for number in range(2000)]
    received: list[bytes] = []
    with switch(namespace, tmp_path, str(PATCH.json), interfaces=(names[0], names[1])):
        entrance, exit_ = (SharedLink(name) for name in names)
        deadline = time.monotonic() + DEADLINE_S
        left = list(frames)
        while len(received) < len(frames):
            assert time.monotonic() < deadline
            while left and entrance.send(left[0]):
                left.pop(0)
            received += iter(exit_.receive, None)
    del entrance, exit_
    assert received == frames
    assert not list(Path("/dev", "shm").glob(f"*test-{os.getpid()}-*"))
