# SPDX-License-Identifier: Apache-2.0
"""The command `railweave switch`: its messages, its refusals and its end."""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from dataplane import wire
from dataplane.harness import STOP_S, process
from dataplane.programs import PATCH, ROUTER
from queue_program import priority_program
from vectors.case import case

DEADLINE_S = 20.0
COMMAND = [sys.executable, "-m", "railweave.switch"]

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces and raw sockets need root")


def refused(namespace: str, *arguments: str, under: Sequence[str] = ()) -> str:
    """Return the message of a switch that does not start. `under` is a command that runs the switch."""
    done = subprocess.run(
        ["ip", "netns", "exec", namespace, *under, *COMMAND, *arguments],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode not in (0, -6, -11)
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    return done.stderr


REFUSED: list[tuple[tuple[str, ...], list[str]]] = [
    ((), ["--interface", "PORT@INTERFACE"]),
    (("-i", "s1"), ["'s1'", "PORT@INTERFACE"]),
    (("-i", "one@s1"), ["'one@s1'", "PORT@INTERFACE"]),
    (("-i", "511@s1"), ["511", "drop"]),
    (("-i", "1@s1", "-i", "1@s2"), ["port 1", "twice", "s1", "s2"]),
    (("-i", "1@s1", "-i", "2@s1"), ["s1", "twice"]),
    (("-i", "1@nowhere"), ["nowhere", "No such device"]),
    (("-i", "1@s1", "--target", "tofino9"), ["tofino9", "embedded", "bmv2"]),
    (("-i", "1@s1", "--device-id", "-1"), ["--device-id"]),
    (("-i", "1@s1", "--grpc", "10.99.99.99:9559"), ["10.99.99.99:9559", "--grpc"]),
    (("-i", "1@s1", "--p4info", str(PATCH.p4info)), ["--program"]),
    (("-i", "1@s1", "--program", "/nowhere.json", "--p4info", str(PATCH.p4info)), ["/nowhere.json"]),
    (("-i", "1@s1", "--program", str(PATCH.p4info), "--p4info", str(PATCH.p4info)), ["patch.p4info"]),
    (("-i", "1@s1", "--program", str(PATCH.json), "--p4info", str(PATCH.json)), ["expected a P4Info"]),
    (("-i", "1@s1", "--program", str(PATCH.json), "--p4info", str(ROUTER.p4info)), ["table", "lacks"]),
]

# One process runs the command for each line of arguments, because Python starts slowly.
DRIVER = """
import contextlib, io, json, sys
from railweave.switch.cli import app
for arguments in json.loads(sys.argv[1]):
    with contextlib.redirect_stderr(io.StringIO()) as said:
        try:
            app(arguments)
        except SystemExit as end:
            print(json.dumps([end.code, said.getvalue()]))
"""


def test_what_cannot_be_is_refused_in_words(namespace: str) -> None:
    arguments = json.dumps([each for each, _ in REFUSED])
    command = ["ip", "netns", "exec", namespace, sys.executable, "-c", DRIVER, arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=True)
    for (given, words), line in zip(REFUSED, done.stdout.splitlines(), strict=True):
        code, message = json.loads(line)
        assert code, given
        assert all(word in message for word in words), (given, message)


def test_without_the_right_to_raw_sockets_it_says_so(namespace: str) -> None:
    assert "root" in refused(namespace, "-i", "1@s1", under=("setpriv", "--bounding-set", "-net_raw"))


def test_an_address_in_use_is_named(namespace: str) -> None:
    def occupy() -> socket.socket:
        return socket.create_server(("127.0.0.1", 9559))

    with wire.in_namespace(namespace, occupy):
        assert "127.0.0.1:9559" in refused(namespace, "-i", "1@s1")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_ends_cleanly_on_signals(namespace: str, number: signal.Signals, tmp_path: Path) -> None:
    command = ["ip", "netns", "exec", namespace, *COMMAND, "-i", "1@s1", "-i", "2@s2"]
    with process(command, tmp_path / "log") as child:
        child.send_signal(number)
        assert child.wait(STOP_S) == 0
    assert (tmp_path / "log").read_text() == ""


def test_packets_that_wait_leave_in_the_order_of_their_priorities(namespace: str, tmp_path: Path) -> None:
    program = tmp_path / "program.json"
    program.write_bytes(priority_program(2))
    options = ["--program", str(program), "--p4info", str(case("cpu").p4info), "--priority-queues", "8"]
    command = ["ip", "netns", "exec", namespace, *COMMAND, "-i", "1@s1", "-i", "2@s2", *options]
    sender, receiver = (open_link(namespace, number) for number in (1, 2))
    packets = [bytes([0, number % 8, number, *bytes(57)]) for number in range(16)]
    with sender, receiver, process(command, tmp_path / "log") as child:
        child.send_signal(signal.SIGSTOP)  # so that it finds all packets at once
        for packet in packets:
            sender.send(packet)
        child.send_signal(signal.SIGCONT)
        receiver.settimeout(DEADLINE_S)
        received = [receiver.recv(2048) for _ in packets]
    assert received == sorted(packets, key=lambda packet: -packet[1])


@pytest.fixture
def talkative(namespace: str, tmp_path: Path) -> Iterator[tuple[socket.socket, subprocess.Popen[bytes]]]:
    """Run a switch whose program writes messages. Return a socket at its port 1, and its process."""
    messages = case("messages")
    options = ["--program", str(messages.json), "--p4info", str(messages.p4info)]
    command = ["ip", "netns", "exec", namespace, *COMMAND, "-i", "1@s1", *options]
    with open_link(namespace, 1) as sender, process(command, tmp_path / "log") as child:
        yield sender, child


def test_messages_of_the_program_are_on_the_output(
    talkative: tuple[socket.socket, subprocess.Popen[bytes]],
) -> None:
    sender, child = talkative
    for value, wanted in ((40, "parsed 40"), (100, "assertion failed: messages.p4:")):
        sender.send(bytes([value, *bytes(59)]))
        expect(child, wanted)


def test_an_output_that_nobody_reads_does_not_stop_the_switch(
    talkative: tuple[socket.socket, subprocess.Popen[bytes]],
) -> None:
    sender, child = talkative
    assert child.stdout
    capacity = fcntl.fcntl(child.stdout, fcntl.F_SETPIPE_SZ, 4096)
    for _ in range(capacity // 16):  # of 3 messages each
        sender.send(bytes(60))
    deadline = time.monotonic() + DEADLINE_S
    while struct.unpack("i", fcntl.ioctl(child.stdout, termios.FIONREAD, bytes(4)))[0] == 0:
        assert time.monotonic() < deadline
    child.send_signal(signal.SIGTERM)
    assert child.wait(STOP_S) == 0


def open_link(namespace: str, number: int) -> socket.socket:
    """Return a raw socket on the host's end of a link."""
    return wire.in_namespace(namespace, lambda: wire.packet_socket(f"h{number}"))


def expect(child: subprocess.Popen[bytes], wanted: str) -> None:
    """Read the output of a switch until it has these words."""
    assert child.stdout
    os.set_blocking(child.stdout.fileno(), False)
    deadline, output = time.monotonic() + DEADLINE_S, ""
    while wanted not in output:
        assert select.select([child.stdout], [], [], 0.1)[0] or time.monotonic() < deadline, output
        output += (child.stdout.read() or b"").decode()
