# SPDX-License-Identifier: Apache-2.0
"""A switch process on veth links under closed-loop load of a native generator: the same for every target."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import finsy as fy

from railweave._native import load as native
from railweave.controller import tables
from railweave.experiments.errors import OptionError
from railweave.experiments.switch_speed.alone import WrongResult
from railweave.experiments.switch_speed.scenario import (
    FIRST_WORKER_PORT,
    SLOTS,
    UDP_PORT,
    VIRTUAL_IP,
    Scenario,
)
from railweave.switch.targets import TARGETS
from railweave.topologies.lab.namespaces import Namespaces, interface_of_port
from railweave.topologies.lab.processes import Child, Event
from railweave.topologies.lab.record import RunRecord, sweep

READY_S = 30.0
SOL_UDP, UDP_GRO = 17, 104
SO_SNDBUFFORCE, SO_RCVBUFFORCE = 32, 33
BUFFER_BYTES = 32 << 20
CLONE_NEWNET = 0x40000000
SEGMENTS = 60  # packets per super-packet: 256 lanes fill an IP packet with 62
WINDOWS = (4, 8, 16, 32, 64, 128, 256, SLOTS)
TRIAL_S, WARM_UP_S = 0.15, 0.1
ECHO = "echo"  # not a switch: the ports' and the kernel's part alone
GIVE_UP = 0.5  # a window this much slower than the best: larger ones are not tried

_T = TypeVar("_T")


@dataclass(frozen=True)
class Load:
    """How the workers drive a switch: chunks on their way per worker, packets per super-packet."""

    window: int
    segments: int


@dataclass(frozen=True)
class Speed:
    """What one target did under the load that suits it best."""

    target: str
    pps: float  # contributions whose right result came back, per second, over all workers
    load: Load
    repeated: int  # contributions sent again because nothing had come
    trials: dict[int, float] = field(default_factory=dict)  # packets per second by window


async def measure(scenario: Scenario, target: str, seconds: float, out: Path) -> Speed:
    """Find the window that suits the target, then load it for `seconds`; its log goes to the folder `out`.

    WrongResult if any result is not right, OptionError if nothing comes back, LabError if it does not start.
    """
    async with _switch(scenario, target, out) as namespaces:
        with _sockets(scenario, namespaces) as sockets:
            generator = _Generator(scenario, [udp.fileno() for udp in sockets], echo=target == ECHO)
            trials: dict[Load, float] = {}
            for window in WINDOWS:
                load = Load(window, 1 if target == "bmv2" else min(SEGMENTS, max(1, window // 2)))
                trials[load] = (await generator.run(load, TRIAL_S)).pps
                if trials[load] < GIVE_UP * max(trials.values()):
                    break
            best = max(trials, key=lambda load: trials[load])
            outcome = await generator.run(best, seconds)
    if not outcome.pps:
        raise OptionError(f"no result of {target} within {seconds:g} s", "results", f"read its log in {out}")
    return replace(outcome, target=target, trials={load.window: round(pps) for load, pps in trials.items()})


class _Generator:
    """Runs of the native generator on the same sockets: each begins where the one before cannot be."""

    def __init__(self, scenario: Scenario, fds: list[int], *, echo: bool) -> None:
        self._lanes = scenario.lanes
        self._echo = echo
        self._fds = fds
        self._round = 0

    async def run(self, load: Load, seconds: float) -> Speed:
        counts = await asyncio.to_thread(
            native.drive,
            self._fds,
            self._lanes,
            load.segments,
            load.window,
            self._round,
            WARM_UP_S,
            seconds,
            self._echo,
        )
        self._round += int(10e6 * (seconds + WARM_UP_S)) // load.window  # more than any switch can do
        if counts["wrong"]:
            raise WrongResult(f"{counts['wrong']} results under load had wrong sums")
        return Speed("", counts["right"] / counts["seconds"], load, counts["repeated"])


@contextlib.asynccontextmanager
async def _switch(scenario: Scenario, target: str, out: Path) -> AsyncIterator[Namespaces]:
    """Start a switch with the program and the group, on links to the workers' namespaces."""
    [switch] = scenario.topology.planes[0].switches
    events: asyncio.Queue[Event] = asyncio.Queue()
    out.mkdir(parents=True, exist_ok=True)
    sweep()
    with contextlib.ExitStack() as stack:
        record = RunRecord(out)
        stack.callback(record.remove)
        namespaces = Namespaces(scenario.topology, {}, plain_frames=target == "bmv2")
        stack.callback(namespaces.close)
        for node in namespaces.nodes():
            record.add(f"namespace {node}", namespaces.pid(node))
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="railweave-"))
        address = f"unix:{folder}/p4runtime"
        interfaces = {nic.port: interface_of_port(switch.name, nic.port) for nic in scenario.nics}
        if target == ECHO:
            command = [sys.executable, "-m", "railweave.experiments.switch_speed.echo", *interfaces.values()]
            _give_neighbour(scenario, namespaces)
        else:
            command = TARGETS[target].command(interfaces, address, switch.device_id)
        child = await Child.start(
            f"switch {target}", namespaces.enter(switch.name, command), out / f"switch-{target}.log", events
        )
        record.add(child.name, child.pid)
        try:
            await child.ready(READY_S)
            if target != ECHO:
                await _configure(scenario, address, switch.device_id)
            yield namespaces
        finally:
            await child.stop()


def _give_neighbour(scenario: Scenario, namespaces: Namespaces) -> None:
    """An echo answers no ARP."""
    mac = tables.virtual_mac(tables.ip_number(VIRTUAL_IP)).to_bytes(6, "big").hex(":")
    for nic in scenario.nics:
        entry = f"neighbour replace {VIRTUAL_IP} lladdr {mac} dev {nic.interface} nud permanent\n"
        namespaces.feed(nic.host, ["ip", "-batch", "-"], entry)


async def _configure(scenario: Scenario, address: str, device_id: int) -> None:
    program = scenario.program
    options = fy.SwitchOptions(p4info=program.p4info_path, p4blob=program.json_path, device_id=device_id)
    async with asyncio.timeout(READY_S), fy.Switch("bench", address, options) as switch:
        await switch.write(scenario.updates())


@contextlib.contextmanager
def _sockets(scenario: Scenario, namespaces: Namespaces) -> Iterator[list[socket.socket]]:
    """A connected UDP socket in every worker's namespace."""
    with contextlib.ExitStack() as stack:
        sockets = []
        for worker, nic in enumerate(scenario.nics):
            connect = partial(_socket, nic.address, FIRST_WORKER_PORT + worker)
            sockets.append(stack.enter_context(_in_namespace(namespaces.pid(nic.host), connect)))
        yield sockets


def _socket(address: str, port: int) -> socket.socket:
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER_BYTES)
    udp.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, BUFFER_BYTES)
    udp.setsockopt(SOL_UDP, UDP_GRO, 1)
    udp.bind((address, port))
    udp.connect((VIRTUAL_IP, UDP_PORT))
    return udp


def _in_namespace(pid: int, call: Callable[[], _T]) -> _T:
    """Call in a thread that has entered the network namespace of a process; sockets made there stay there."""

    def enter() -> _T:
        with Path(f"/proc/{pid}/ns/net").open() as namespace:
            if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        return call()

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(enter).result()
