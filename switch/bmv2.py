# SPDX-License-Identifier: Apache-2.0
"""BMv2's simple_switch_grpc as a child process that is ready, and ends, like the embedded switch."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable

import grpc
from railweave.switch.options import SwitchError, SwitchOptions, stop_on_signals

PROGRAM = "simple_switch_grpc"
DIES_WITH_US = ("setpriv", "--pdeathsig", "KILL")
_START_S = 20.0
_STOP_S = 5.0


def command(options: SwitchOptions) -> list[str]:
    """How BMv2 is started: without a program, which the controller pushes."""
    arguments = [PROGRAM, "--no-p4", "--device-id", str(options.device_id)]
    for port, interface in options.interfaces.items():
        arguments += ["--interface", f"{port}@{interface}"]
    return [*arguments, "--", "--grpc-server-addr", options.grpc]


async def run(options: SwitchOptions, ready: Callable[[str], None]) -> None:
    """Run BMv2 until SIGINT or SIGTERM, calling `ready` once with a line to print; or SwitchError."""
    if options.program or options.p4info:
        raise SwitchError("--program is for the embedded target; the controller pushes programs to bmv2")
    stop = stop_on_signals()
    # Our own output is the line that says ready.
    child = await asyncio.create_subprocess_exec(*DIES_WITH_US, *command(options), stdout=sys.stderr)
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
            raise SwitchError(f"{PROGRAM} ended with status {ended.result()}; what it printed says why")
    finally:
        for future in (stopped, serving):
            future.cancel()
        await _end(child, ended)


async def _serves(address: str) -> None:
    """Return when the gRPC server answers."""
    async with grpc.aio.insecure_channel(address) as channel:
        try:
            await asyncio.wait_for(channel.channel_ready(), _START_S)
        except TimeoutError:
            raise SwitchError(f"{PROGRAM} did not serve {address} within {_START_S:g} s") from None


async def _end(child: asyncio.subprocess.Process, ended: asyncio.Future[int]) -> None:
    if child.returncode is None:
        child.terminate()
    try:
        await asyncio.wait_for(asyncio.shield(ended), _STOP_S)
    except TimeoutError:
        child.kill()
        await ended
