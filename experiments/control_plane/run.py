# SPDX-License-Identifier: Apache-2.0
"""The controller on a fat tree of switches that only answer: what joins, trees and a dead switch cost.

Processes: the controller, as users run it; the switches; one more with the switch that dies. The ranks are
streams of this process. A job has one rank in each of as many places of the network, far apart, so that its
tree goes up to a core.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import grpc

from railweave.experiments.cpu import cpu_times, resident_bytes
from railweave.experiments.errors import OptionError
from railweave.experiments.statistics import median, p99
from railweave.protocol import PROTOCOL
from railweave.topologies.clos import fat_tree
from railweave.topologies.lab.processes import Child, Event, Line
from railweave.topologies.model import Topology
from railweave.topologies.serialize import to_yaml
from railweave.v1 import controller_pb2 as pb
from railweave.v1 import controller_pb2_grpc as pb_grpc

READY_S = 120.0
JOIN_S = 60.0
MOVE_S = 60.0
HEARTBEAT_S = 2.0
SLOTS = 32  # of a job's tree: 64 jobs fit into the 4,096 of a switch


@dataclass(frozen=True)
class Options:
    """Jobs of so many ranks on the fat tree of k-port switches."""

    k: int
    jobs: int
    ranks: int
    out: Path


@dataclass(frozen=True)
class ControlPlane:
    """What it cost; times in seconds."""

    k: int
    hosts: int
    switches: int
    jobs: int
    ranks: int
    configured_s: float  # from the controller's start until it is ready
    admit_s: list[float]  # of each job: from its first request until every rank has its place
    admit_updates: float  # P4Runtime updates of a job
    idle_bytes: int  # of the controller's resident memory, before the first job
    full_bytes: int  # with all jobs
    admit_cpu_s: float  # the controller's processor time for a job
    moved_trees: int  # when the switch with most of them died
    paused_s: float  # until the first rank was told to pause
    move_s: float | None  # until every rank of every such tree had its new place; None: not within MOVE_S
    move_updates: int

    def as_json(self) -> dict[str, Any]:
        """Return the values by name, with median and p99 of the jobs' times."""
        return {**asdict(self), "admit_s": {"median": median(self.admit_s), "p99": p99(self.admit_s)}}


class _Rank:
    """A rank that has joined: it answers what the controller asks, and remembers when."""

    def __init__(self, stub: pb_grpc.ControllerStub, answer: pb.JoinGroupResponse) -> None:
        self.group = answer.ina[0].group
        self.paused_at = 0.0
        self.moved = asyncio.Event()
        self._stub = stub
        self._lease = answer.lease
        self._task = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        call = self._stub.Watch(self._heartbeats())
        async for event in call:
            if event.HasField("group_paused"):
                self.paused_at = time.monotonic()
                report = pb.ReportPositionRequest(lease=self._lease, group=event.group_paused.group)
                await self._stub.ReportPosition(report)
            elif event.HasField("group_moved"):
                self.moved.set()

    async def _heartbeats(self) -> AsyncIterator[pb.Heartbeat]:
        while True:
            yield pb.Heartbeat(lease=self._lease)
            await asyncio.sleep(HEARTBEAT_S)

    async def end(self) -> None:
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError, grpc.RpcError):
            await self._task


async def run(options: Options, on_phase: Callable[[str], None]) -> ControlPlane:
    """Measure one network; OptionError for a job that has more ranks than there are hosts."""
    topology = fat_tree(options.k, rails=("ina",))
    hosts = len(topology.hosts)
    if not 2 <= options.ranks <= hosts:
        raise OptionError(
            f"--ranks {options.ranks}",
            f"2 to {hosts}, the hosts of k={options.k}",
            "ask for fewer ranks, or a larger --k",
        )
    options.out.mkdir(parents=True, exist_ok=True)
    async with contextlib.AsyncExitStack() as stack:
        lab = _Processes(options.out, stack)
        names = [switch.name for switch in topology.planes[0].switches]
        victim = topology.planes[0].levels()[1][0].name  # not a leaf: trees can go round it
        on_phase(f"k={options.k}: starting {len(names)} stub switches")
        ports = dict(zip([n for n in names if n != victim], await lab.switches(len(names) - 1), strict=True))
        ports[victim] = (await lab.switches(1))[0]
        on_phase(f"k={options.k}: the controller configures the switches")
        began = time.monotonic()
        address = await lab.controller(at_ports(topology, ports))
        configured_s = time.monotonic() - began
        idle_bytes = resident_bytes(lab.controller_pid)
        before, cpu_s = await lab.counts(), lab.controller_cpu_s()
        on_phase(f"k={options.k}: {options.jobs} jobs of {options.ranks} ranks join")
        stub = pb_grpc.ControllerStub(  # type: ignore[no-untyped-call]
            await stack.enter_async_context(grpc.aio.insecure_channel(address))
        )
        admit_s, ranks = [], []
        for job in range(options.jobs):
            began = time.monotonic()
            answers = await _join(stub, topology, options, job)
            admit_s.append(time.monotonic() - began)
            ranks += [_Rank(stub, answer) for answer in answers]
        for rank in ranks:
            stack.push_async_callback(rank.end)
        full_bytes, admitted = resident_bytes(lab.controller_pid), await lab.counts()
        admit_cpu_s = (lab.controller_cpu_s() - cpu_s) / options.jobs
        on_phase(f"k={options.k}: a switch dies")
        hit = await _groups_on(stub, victim)
        concerned = [rank for rank in ranks if rank.group in hit]
        began = time.monotonic()
        await lab.kill_last()
        all_moved = await _all_moved(concerned)
        move_s = time.monotonic() - began
        return ControlPlane(
            **{"k": options.k, "hosts": hosts, "switches": len(names)},
            **{"jobs": options.jobs, "ranks": options.ranks},
            configured_s=configured_s,
            admit_s=admit_s,
            admit_updates=(admitted["updates"] - before["updates"]) / options.jobs,
            idle_bytes=idle_bytes,
            full_bytes=full_bytes,
            admit_cpu_s=admit_cpu_s,
            moved_trees=len(hit),
            paused_s=min((rank.paused_at for rank in concerned), default=began) - began,
            move_s=move_s if all_moved else None,
            move_updates=(await lab.counts())["updates"] - admitted["updates"],
        )


class _Processes:
    """Controller and switches; all end with the stack."""

    def __init__(self, out: Path, stack: contextlib.AsyncExitStack) -> None:
        self._out = out
        self._stack = stack
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._switches: list[Child] = []
        self.controller_pid = 0

    async def switches(self, count: int) -> list[int]:
        """Return the ports of so many more switches, of a process of their own."""
        command = [sys.executable, "-m", "railweave.experiments.control_plane.switches", str(count)]
        child, words = await self._start(f"switches-{len(self._switches)}", command)
        self._switches.append(child)
        return [int(word) for word in words]

    async def controller(self, topology: Topology) -> str:
        """Return the address of a controller that has configured all switches."""
        path = self._out / "topology.yaml"
        path.write_text(to_yaml(topology))
        command = [sys.executable, "-m", "railweave", "controller", "--topology", str(path)]
        command += ["--listen", "127.0.0.1:0", "--slots", str(SLOTS), "--trees", "1"]
        command += ["--switch-deadline", str(READY_S)]
        child, words = await self._start("controller", command)
        self.controller_pid = child.pid
        return words[0].removeprefix("listen=")

    def controller_cpu_s(self) -> float:
        """Return the processor time that the controller has had."""
        return cpu_times({"controller": self.controller_pid}).services_s

    async def _start(self, name: str, command: Sequence[str]) -> tuple[Child, list[str]]:
        child = await Child.start(name, command, self._out / f"{name}.log", self._events)
        self._stack.push_async_callback(child.stop)
        return child, (await child.ready(READY_S)).split()[1:]

    async def counts(self) -> Counter[str]:
        """Return what has come to the switches that live, all together."""
        total: Counter[str] = Counter()
        for child in self._switches:
            if not child.running:
                continue
            child.signal(signal.SIGUSR1)
            while True:
                event = await asyncio.wait_for(self._events.get(), READY_S)
                if isinstance(event, Line) and event.child is child and event.text.startswith("{"):
                    total.update(json.loads(event.text))
                    break
        return total

    async def kill_last(self) -> None:
        """End the last process of switches, as a crash would."""
        await self._switches[-1].kill()


def at_ports(topology: Topology, ports: dict[str, int]) -> Topology:
    """Return the topology with its switches at these ports of loopback."""
    planes = tuple(
        replace(
            plane,
            switches=tuple(
                replace(switch, p4runtime=f"127.0.0.1:{ports[switch.name]}", device_id=1)
                for switch in plane.switches
            ),
        )
        for plane in topology.planes
    )
    return replace(topology, planes=planes)


async def _join(
    stub: pb_grpc.ControllerStub, topology: Topology, options: Options, job: int
) -> list[pb.JoinGroupResponse]:
    """Have all ranks of a job join at once."""
    (plane,) = topology.planes
    far = len(topology.hosts) // options.ranks

    def request(rank: int) -> pb.JoinGroupRequest:
        nic = plane.nics[(job + rank * far) % len(topology.hosts)]
        rail = pb.RailOffer(
            name="ina", kind="ina", plane=plane.name, address=nic.address, mac=nic.mac, port=5000 + job
        )
        return pb.JoinGroupRequest(
            job=f"job{job}",
            rank=rank,
            size=options.ranks,
            rails=[rail],
            deadline_s=JOIN_S,
            protocol=PROTOCOL,
        )

    try:
        return list(await asyncio.gather(*(stub.JoinGroup(request(rank)) for rank in range(options.ranks))))
    except grpc.aio.AioRpcError as error:
        raise OptionError(str(error.details()), "a group for each job", "ask for fewer --jobs") from None


async def _groups_on(stub: pb_grpc.ControllerStub, switch: str) -> set[int]:
    """Return the groups that have slots on a switch."""
    counters = await stub.GetSwitchCounters(pb.SwitchCountersRequest())
    return {group.group for found in counters.switches if found.name == switch for group in found.groups}


async def _all_moved(ranks: Sequence[_Rank]) -> bool:
    try:
        async with asyncio.timeout(MOVE_S):
            await asyncio.gather(*(rank.moved.wait() for rank in ranks))
    except TimeoutError:
        return False
    return True
