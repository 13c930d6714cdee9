# SPDX-License-Identifier: Apache-2.0
"""BMv2's simple_switch_grpc as a child process that is ready, and ends, like the embedded switch."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import sys
from collections.abc import Callable
from pathlib import Path

from railweave.switch.errors import SwitchError
from railweave.switch.options import SwitchOptions, stop_on_signals

PROGRAM = "simple_switch_grpc"
DIES_WITH_US = ("setpriv", "--pdeathsig", "KILL")
COMPLAINT = re.compile(r"error|fail|invalid|cannot|not supported|exception|assert", re.IGNORECASE)
FREE_ADDRESS = "name another address, or stop the switch that has it"
_START_S = 20.0
_RETRY_S = 0.02
_STOP_S = 5.0


def command(options: SwitchOptions) -> list[str]:
    """Return BMv2's command line. It has no program, because the controller pushes one."""
    arguments = [PROGRAM, "--no-p4", "--device-id", str(options.device_id)]
    for port, interface in options.interfaces.items():
        arguments += ["--interface", f"{port}@{interface}"]
    for folder in set(options.pcap.values()):
        arguments += [f"--pcap={folder}"]
    arguments += ["--", "--grpc-server-addr", options.grpc]
    arguments += ["--priority-queues", str(options.priority_queues)]
    if options.cpu_port is not None:
        arguments += ["--cpu-port", str(options.cpu_port)]
    if options.tls is not None:
        arguments += ["--grpc-server-ssl", "--grpc-server-cert", str(options.tls.certificate)]
        arguments += ["--grpc-server-key", str(options.tls.key)]
        if options.tls.client_ca is not None:
            arguments += [
                "--grpc-server-cacert",
                str(options.tls.client_ca),
                "--grpc-server-with-client-auth",
            ]
    return arguments


async def run(options: SwitchOptions, ready: Callable[[str], None]) -> None:
    """Run BMv2 until SIGINT or SIGTERM, calling `ready` once with a line to print; or SwitchError."""
    check(options)
    stop = stop_on_signals()
    for folder in options.pcap.values():
        folder.mkdir(parents=True, exist_ok=True)
    # Our own output is the line that says ready.
    child = await asyncio.create_subprocess_exec(
        *DIES_WITH_US, *command(options), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    words = asyncio.ensure_future(_forward(child))
    ended = asyncio.ensure_future(child.wait())
    stopped = asyncio.ensure_future(stop.wait())
    serving = asyncio.ensure_future(_serves(options.grpc))
    try:
        done, _ = await asyncio.wait({ended, stopped, serving}, return_when=asyncio.FIRST_COMPLETED)
        if serving in done:
            serving.result()
            ready(options.ready_line())
            done, _ = await asyncio.wait({ended, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if ended in done:
            raise SwitchError(
                f"{PROGRAM} ended with status {ended.result()}: {await words or 'no output'}",
                "a process that runs until it is stopped",
                "correct the options that its output names",
            )
    finally:
        for future in (stopped, serving):
            future.cancel()
        await _end(child, ended)


def check(options: SwitchOptions) -> None:
    """Raise SwitchError for options that BMv2 lacks, or would ignore silently."""
    if options.program or options.p4info:
        raise SwitchError(
            "--program with --target bmv2", "a program pushed by a controller", "omit --program and --p4info"
        )
    if options.impairments:
        raise SwitchError(
            "--impair with --target bmv2",
            "--target embedded, which impairs links",
            "omit --impair, or change the target",
        )
    if len(set(options.pcap.values())) > 1 or set(options.pcap) not in (set(), set(options.interfaces)):
        raise SwitchError(
            "--pcap PORT@FOLDER with --target bmv2",
            "--pcap FOLDER, because BMv2 captures all ports or none",
            "name one folder",
        )
    known = {name for _, name in socket.if_nameindex()}
    for port, interface in options.interfaces.items():
        if interface not in known:  # BMv2 would go on without the port
            raise SwitchError(
                f"port {port}: no interface {interface}",
                "an interface that `ip link` lists",
                "correct --interface",
            )
    if options.cpu_port == 0:
        raise SwitchError(
            "--cpu-port 0 with --target bmv2",
            "1 or more, because 0 means none to BMv2",
            "choose another port",
        )
    if options.tls is not None:
        options.tls.read()  # BMv2 would go on without a file that it cannot read
    _check_free(options.grpc)


def _check_free(address: str) -> None:
    """Raise SwitchError if the address is in use.

    BMv2 would go on without a server, and its controller would talk to another switch.
    """
    if address.startswith("unix:"):
        if _socket_file(address).exists():
            raise SwitchError(
                f"--grpc {address}: the file exists", "a socket of no other switch", FREE_ADDRESS
            )
        return
    host, _, port = address.rpartition(":")
    try:
        [(family, kind, _, _, where), *_] = socket.getaddrinfo(
            host.strip("[]"), port, type=socket.SOCK_STREAM
        )
        with contextlib.closing(socket.socket(family, kind)) as attempt:
            attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            attempt.bind(where)
    except OSError as error:
        raise SwitchError(
            f"--grpc {address}: {error.strerror or error}", "a free address of this machine", FREE_ADDRESS
        ) from None


def _socket_file(address: str) -> Path:
    return Path(address.removeprefix("unix:").removeprefix("//"))


async def _forward(child: asyncio.subprocess.Process) -> str:
    """Pass on BMv2's output, its complaints under our name. Return its last line.

    It refuses some programs on its standard output alone, and goes on with the one before.
    """
    assert child.stdout is not None  # noqa: S101 - asked for
    last = complaint = ""
    async for raw in child.stdout:
        last = raw.decode(errors="replace").strip() or last
        if COMPLAINT.search(last):
            complaint = last
        print(f"railweave switch: {PROGRAM}: {last}" if complaint == last else last, file=sys.stderr)
    return complaint or last


async def _serves(address: str) -> None:
    """Return when the gRPC server takes connections, with TLS or without."""
    try:
        async with asyncio.timeout(_START_S):
            while True:
                with contextlib.suppress(OSError):
                    if address.startswith("unix:"):
                        _, writer = await asyncio.open_unix_connection(_socket_file(address))
                    else:
                        host, _, port = address.rpartition(":")
                        _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
                    writer.close()
                    return
                await asyncio.sleep(_RETRY_S)
    except TimeoutError:
        raise SwitchError(
            f"{PROGRAM} did not serve {address} within {_START_S:g} s",
            "a gRPC server there",
            "read its output",
        ) from None


async def _end(child: asyncio.subprocess.Process, ended: asyncio.Future[int]) -> None:
    if child.returncode is None:
        child.terminate()
    try:
        await asyncio.wait_for(asyncio.shield(ended), _STOP_S)
    except TimeoutError:
        child.kill()
        await ended
