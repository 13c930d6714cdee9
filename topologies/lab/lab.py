# SPDX-License-Identifier: Apache-2.0
"""A running lab: namespaces, P4 switches, the controller, and workers in the hosts."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
import signal
import sys
import threading
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

from railweave.topologies.errors import LabError, WorkerFailed
from railweave.topologies.lab import counters, flows, services
from railweave.topologies.lab.counters import InterfaceCounters
from railweave.topologies.lab.faults import Step
from railweave.topologies.lab.namespaces import (
    CONTROLLER_NODE,
    Namespaces,
    Primed,
    check_names,
    require_tools,
)
from railweave.topologies.lab.options import LabOptions
from railweave.topologies.lab.processes import Child, Event, Exit, Line
from railweave.topologies.lab.record import RunRecord, sweep
from railweave.topologies.model import Plane, Switch, Topology
from railweave.topologies.planes import CONTROLLER_ADDRESS, CONTROLLER_PORT
from railweave.topologies.serialize import to_yaml

log = logging.getLogger(__name__)

READY_DEADLINE_S = 30.0
COMPILED_BEFORE_S = 2.0  # time for a switch to find a program that has been compiled before
PEER_LOST = "PeerLost: "  # the error of ranks that have lost another rank
NOTICE_S = 8.0  # time for the other workers to end once one has failed


@contextlib.contextmanager
def _interrupted_at_once() -> Iterator[None]:
    """Let Ctrl-C raise KeyboardInterrupt at once. asyncio would wait for the next `await`.

    Ctrl-C also ends the shells that Mininet is starting, and Mininet would then wait for them for ever.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class Lab:
    """`async with Lab(topology, options) as lab:` makes a running network, and removes it on leaving."""

    def __init__(self, topology: Topology, options: LabOptions) -> None:
        """Check the names. Nothing else happens before `async with`.

        TopologyError if Linux does not allow nodes and interfaces with these names.
        """
        check_names(topology)
        self.topology = topology
        self._options = options
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._services: dict[str, Child] = {}  # switches by name, and CONTROLLER_NODE
        self._killed: set[Child] = set()  # children that this lab has ended, so their end is no failure
        self._workers: list[Child] = []
        self._unfinished: set[Child] = set()  # workers whose end `events` has not seen
        self._namespaces: Namespaces | None = None
        self._record: RunRecord | None = None

    async def __aenter__(self) -> Lab:
        """Start everything except workers, each part when the parts that it needs are ready."""
        try:
            with _interrupted_at_once():
                self._make_network()
            await self._start_services()
            await self.programs_compiled()
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop all processes and remove the network."""
        await self._close()

    async def start_worker(
        self,
        host: str,
        name: str,
        command: Sequence[str],
        environment: Mapping[str, str],
        *,
        merged: bool = False,
    ) -> Child:
        """Start a command inside a host. `name` is for messages, and `merged` is as for `Child.start`."""
        child = await self._spawn(name, host, command, environment, merged=merged)
        self._workers.append(child)
        self._unfinished.add(child)
        return child

    async def events(self) -> AsyncIterator[Line]:
        """Yield the workers' output until all have ended with status 0.

        LabError as soon as a worker fails, or a switch or the controller ends. The message names the first
        process to end, and the last error lines of the others that end within a few seconds.
        """
        while self._unfinished:
            event = await self._events.get()
            if isinstance(event, Line):
                if event.child in self._workers:
                    yield event
            elif event.child in self._killed:
                continue
            elif event.child in self._services.values() or event.code:
                raise await self._failure(event)
            else:
                self._unfinished.discard(event.child)

    def interface_counters(self, plane: str) -> dict[str, InterfaceCounters]:
        """Return the kernel's counts of each host's interface on a plane."""
        counts = {
            nic.host: counters.parse(self.read(nic.host, counters.COMMAND))[nic.interface]
            for nic in self.topology.plane(plane).nics
        }
        if self._options.flows:
            for nic in self.topology.plane(plane).nics:
                sent = flows.parse(self.read(nic.host, flows.COMMAND))[nic.interface]
                counts[nic.host] = replace(counts[nic.host], flows=sent)
        return counts

    def bytes_carried(self, plane: str) -> int:
        """Return the bytes carried by a plane's links, both ways. Unshaped switch ports count nothing."""
        hosts = self.interface_counters(plane).values()
        switches = [
            counters.parse(self.read(switch.name, counters.COMMAND)).values()
            for switch in self.topology.plane(plane).switches
        ]
        return sum(counts.bytes_sent for of in (hosts, *switches) for counts in of)

    async def switch_counters(self) -> dict[str, dict[str, int]]:
        """Return packets by decision of the P4 program, by plane, without planes of bridges."""
        if not any(switch.p4runtime for plane in self.topology.planes for switch in plane.switches):
            return {}
        command = [sys.executable, "-m", "railweave.topologies.lab.switch_counters", self.controller]
        failed = "the controller did not return the switches' counters"
        counters_by_plane: dict[str, dict[str, int]] = await self.ask(
            command, failed, "an answer of the controller", f"read its log in {self._options.out}"
        )
        return counters_by_plane

    async def ask(self, command: Sequence[str], failed: str, expected: str, remedy: str) -> Any:
        """Run a command in the controller's node. Return the JSON that it prints.

        Raises LabError with these texts, and the last line of its errors, if the command fails.
        """
        process = await asyncio.create_subprocess_exec(
            *self.run_in(CONTROLLER_NODE, command),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        answer, complaint = await process.communicate()
        if process.returncode:
            lines = complaint.decode(errors="replace").strip().splitlines() or ["no reason given"]
            raise LabError(f"{failed}: {lines[-1]}", expected, remedy)
        return json.loads(answer)

    async def prompt(self) -> None:
        """Open Mininet's prompt on this terminal. Return when the user leaves it."""
        loop = asyncio.get_running_loop()
        left: asyncio.Future[None] = loop.create_future()

        def end() -> None:
            if not left.done():
                left.set_result(None)

        def ask() -> None:
            try:
                self._nodes.prompt()
            finally:
                loop.call_soon_threadsafe(end)

        # A daemon thread: nothing can interrupt a thread that reads a terminal at the program's end.
        threading.Thread(target=ask, daemon=True).start()
        await left

    async def kill(self, name: str) -> None:
        """Kill a switch, or the controller (CONTROLLER_NODE). Its end is no failure of the lab."""
        child = self._services.pop(name)
        self._killed.add(child)
        await child.kill()

    async def kill_worker(self, worker: Child) -> None:
        """Kill a worker. Its end is no failure of the lab."""
        self._workers.remove(worker)
        self._unfinished.discard(worker)
        self._killed.add(worker)
        await worker.kill()

    async def stop_workers(self) -> None:
        """End the workers that still run. Others can be started then."""
        children, self._workers = self._workers, []
        self._unfinished.clear()
        self._killed.update(children)
        await asyncio.gather(*(child.stop() for child in children))

    async def revive(self, name: str) -> None:
        """Start a killed switch, or the killed controller. Return when it is ready."""
        if name == CONTROLLER_NODE:
            await self._start_controller()
            return
        plane, switch = self._switch(name)
        await self._start_switch(plane, switch)
        await self._services[name].ready(READY_DEADLINE_S)

    async def programs_compiled(self) -> None:
        """Wait until no switch compiles its program. Until then it is slow, and the compiler uses a core."""
        compiled = asyncio.gather(*(child.compiled() for child in self._services.values()))
        if not (await asyncio.wait([compiled], timeout=COMPILED_BEFORE_S))[0]:
            log.warning("compiling the P4 program, once on this machine")
        await compiled

    def freeze(self, switch: str) -> None:
        """Stop a P4 switch's process until `thaw`, or until the lab ends."""
        self._services[switch].freeze()

    def thaw(self, switch: str) -> None:
        """Let a frozen switch continue."""
        self._services[switch].thaw()

    def processes(self) -> dict[str, int]:
        """Return the process ids of all running switches and workers and of the controller, by name."""
        children = [*self._services.values(), *self._workers]
        return {child.name: child.pid for child in children if child.running}

    def prime(self, step: Step) -> Primed:
        """Start a step's tool, which waits for its commands."""
        return self._nodes.prime(step.node, step.tool.value, step.orders)

    def pid(self, node: str) -> int:
        """Return the id of the process that holds a node's namespace."""
        return self._nodes.pid(node)

    def read(self, node: str, command: Sequence[str]) -> str:
        """Run a short command inside a node to its end. Return its output."""
        return self._nodes.feed(node, [*command], "")

    def do(self, steps: Iterable[Step]) -> None:
        """Carry out steps one after the other."""
        for step in steps:
            self._nodes.feed(step.node, list(step.tool.value), step.orders)

    def _switch(self, name: str) -> tuple[Plane, Switch]:
        for plane in self.topology.planes:
            for switch in plane.switches:
                if switch.name == name and switch.p4runtime:
                    return plane, switch
        raise LabError(
            f"topology {self.topology.name!r} has no P4 switch {name!r}",
            "a P4 switch of this topology",
            "draw the topology with `railweave topo`, and correct the name",
        )

    @property
    def _nodes(self) -> Namespaces:
        assert self._namespaces is not None  # noqa: S101 - within `async with`
        return self._namespaces

    @property
    def out(self) -> Path:
        """The folder of the lab's logs."""
        return self._options.out

    def loss(self, plane: str) -> float:
        """Return the probability that a frame is lost on a plane, as the options of the lab say."""
        return self._options.loss.get(plane, 0.0)

    @property
    def controller(self) -> str:
        """The controller's address, as hosts reach it."""
        return f"{CONTROLLER_ADDRESS}:{CONTROLLER_PORT}"

    @property
    def topology_file(self) -> Path:
        """The path of the topology file that the controller reads."""
        return self._options.out / "topology.yaml"

    def run_in(self, node: str, command: Sequence[str]) -> list[str]:
        """Return the command line that runs `command` inside a node."""
        return self._nodes.enter(node, command)

    def _make_network(self) -> None:
        require_tools()
        for leftovers in sweep():
            log.warning("%s", leftovers)
        self._options.out.mkdir(parents=True, exist_ok=True)
        self.topology_file.write_text(to_yaml(self.topology))
        self._record = RunRecord(self._options.out)
        self._namespaces = Namespaces(
            self.topology,
            self._options.loss,
            plain_frames=self._options.switch_target == "bmv2",
            flows=self._options.flows,
        )
        for node in self._namespaces.nodes():
            self._record.add(f"namespace {node}", self._namespaces.pid(node))

    async def _start_services(self) -> None:
        for plane in self.topology.planes:
            for switch in plane.switches:
                if switch.p4runtime:
                    await self._start_switch(plane, switch)
        for child in self._services.values():
            await child.ready(READY_DEADLINE_S)
        await self._start_controller()

    async def _start_controller(self) -> None:
        command = services.controller_command(self._options, self.topology, self.controller)
        controller = await self._spawn("controller", CONTROLLER_NODE, command, {})
        self._services[CONTROLLER_NODE] = controller
        await controller.ready(READY_DEADLINE_S)

    async def _start_switch(self, plane: Plane, switch: Switch) -> None:
        command = services.switch_command(self._options, plane, switch)
        self._services[switch.name] = await self._spawn(f"switch {switch.name}", switch.name, command, {})

    async def _spawn(
        self,
        name: str,
        node: str,
        command: Sequence[str],
        environment: Mapping[str, str],
        *,
        merged: bool = False,
    ) -> Child:
        assert self._record is not None  # noqa: S101
        child = await Child.start(
            name,
            self.run_in(node, command),
            self._options.out / (re.sub(r"[^\w-]+", "-", name).strip("-") + ".log"),
            self._events,
            environment,
            merged=merged,
        )
        self._record.add(name, child.pid)
        return child

    async def _failure(self, first: Exit) -> LabError:
        """Wait up to NOTICE_S for the other workers to end, and collect their last error lines."""
        ends = [first]
        waiting = self._unfinished - {first.child} if first.child in self._workers else set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(NOTICE_S):
                while waiting:
                    event = await self._events.get()
                    if isinstance(event, Exit):
                        waiting.discard(event.child)
                        if event.code:
                            ends.append(event)
        # Errors of lost ranks come first: such a rank knows more than the ranks that lost it.
        ends.sort(key=lambda end: PEER_LOST in end.child.failure_notice(end.code))
        alike: dict[tuple[int, str], list[Exit]] = {}
        for end in ends:
            alike.setdefault((end.code, end.child.trouble), []).append(end)
        words = [
            one.child.failure_notice(one.code)
            + (f"; so did {', '.join(other.child.name for other in others)}" if others else "")
            for one, *others in alike.values()
        ]
        words += [f"{worker.name} did not notice within {NOTICE_S:g} s" for worker in waiting]
        text = "\n".join(words)
        if first.child in self._workers:
            return WorkerFailed(ends[0].code, text, "exit status 0", "read the log")
        return LabError(text, "a process that runs until the lab ends", "read the log")

    async def _close(self) -> None:
        children = [*self._workers, *self._services.values()]
        self._workers, self._services = [], {}
        await asyncio.gather(*(child.stop() for child in children))
        if self._namespaces is not None:
            self._namespaces.close()
            self._namespaces = None
        if self._record is not None:
            self._record.remove()
            self._record = None
