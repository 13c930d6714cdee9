# SPDX-License-Identifier: Apache-2.0
"""`railweave bench controller`: the cost of joins, trees and a dead switch, on fat trees of stub switches.

The controller is a process, as users run it. The stub switches and the ranks are in this process. Each job
has one rank in each of several distant places of the network, so that its tree goes up to a core.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import grpc

from railweave.benchmarks.harness import Benchmark, OnPhase, Part, Reading
from railweave.benchmarks.stub_switches import StubSwitch
from railweave.experiments.cpu import cpu_times, resident_bytes
from railweave.experiments.errors import OptionError
from railweave.experiments.statistics import p99
from railweave.protocol import PROTOCOL
from railweave.topologies.clos import fat_tree
from railweave.topologies.errors import TopologyError
from railweave.topologies.lab.processes import Child
from railweave.topologies.model import Topology
from railweave.topologies.serialize import to_yaml
from railweave.v1 import controller_pb2 as pb
from railweave.v1 import controller_pb2_grpc as pb_grpc

READY_S = 120.0
JOIN_S = 60.0
MOVE_S = 60.0
HEARTBEAT_S = 2.0
SLOTS = 32  # of a job's tree: 64 jobs fit into the 4,096 of a switch
LIMIT = "a core for the controller, and one for the stub switches and the ranks"
NOTES = (
    "network: time until all switches are configured; memory of the controller before the first job and with "
    "all jobs.",
    "admission: time from a job's first request until every rank has its place; processor time of the "
    "controller and P4Runtime updates of a job. Jobs join one after the other.",
    "death: a switch between leaves and cores dies; time until the first rank pauses, and until every rank "
    f"of every tree on it has a new place. all moved is empty if this took more than {MOVE_S:g} s.",
)


def benchmark(ports: Sequence[int], jobs: int, ranks: int) -> Benchmark:
    """Return the benchmark of fat trees whose switches have these numbers of ports.

    Raises OptionError for a job with more ranks than hosts, and if no such fat tree exists.
    """
    parts = {}
    for k in ports:
        try:
            topology = fat_tree(k, rails=("ina",))
        except TopologyError as error:
            raise OptionError(f"--k: {error}") from error
        hosts = len(topology.hosts)
        if not 2 <= ranks <= hosts:
            raise OptionError(
                f"--ranks {ranks}",
                f"2 to {hosts}, the hosts of k={k}",
                "ask for fewer ranks, or a larger --k",
            )
        parts[f"k={k}"] = Part(partial(_measure, k, topology, jobs, ranks), LIMIT, NOTES)
    return Benchmark("controller", parts)


async def _measure(
    k: int, topology: Topology, jobs: int, size: int, folder: Path, on_phase: OnPhase
) -> AsyncIterator[Reading]:
    """Measure one network. Each job has `size` ranks."""
    folder /= f"k={k}"
    folder.mkdir(exist_ok=True)
    async with contextlib.AsyncExitStack() as stack:
        [plane] = topology.planes
        on_phase(f"starting {len(plane.switches)} stub switches")
        stubs = {switch.name: StubSwitch() for switch in plane.switches}
        for each in stubs.values():
            await each.start()
            stack.push_async_callback(each.stop)
        on_phase("the controller configures the switches")
        began = time.monotonic()
        address, controller = await _controller(_at_stubs(topology, stubs), folder, stack)
        configured_s = time.monotonic() - began
        idle_bytes = resident_bytes(controller)
        updates, cpu_s = _updates(stubs), _cpu_s(controller)
        on_phase(f"{jobs} jobs of {size} ranks join")
        stub = pb_grpc.ControllerStub(  # type: ignore[no-untyped-call]
            await stack.enter_async_context(grpc.aio.insecure_channel(address))
        )
        admit_ms: list[float] = []
        ranks: list[_Rank] = []
        for job in range(jobs):
            began = time.monotonic()
            answers = await _join(stub, topology, size, job)
            admit_ms.append(1e3 * (time.monotonic() - began))
            for answer in answers:
                ranks.append(_Rank(stub, answer))
                stack.push_async_callback(ranks[-1].end)
        numbers = {
            "configured": (configured_s, "s"),
            "memory": (idle_bytes / 2**20, "MiB"),
            "with all jobs": (resident_bytes(controller) / 2**20, "MiB"),
        }
        network = {"k": k, "hosts": len(topology.hosts), "switches": len(stubs)}
        yield Reading("network", network, numbers)
        admitted, load = _updates(stubs), {"k": k, "jobs": jobs, "ranks": size}
        for milliseconds in admit_ms:
            yield Reading("admission", load, {"admitted": (milliseconds, "ms")})
        numbers = {
            "p99": (p99(admit_ms), "ms"),
            "processor": (1e3 * (_cpu_s(controller) - cpu_s) / jobs, "ms"),
            "updates": ((admitted - updates) / jobs, "per job"),
        }
        yield Reading("admission", load, numbers)
        on_phase("a switch dies")
        victim = plane.levels()[1][0].name  # not a leaf: trees can go round it
        hit = await _groups_on(stub, victim)
        concerned = [rank for rank in ranks if rank.group in hit]
        began = time.monotonic()
        await stubs[victim].stop()
        all_moved = await _all_moved(concerned)
        moved_s = time.monotonic() - began
        paused_s = min((rank.paused_at for rank in concerned if rank.paused_at), default=began) - began
        numbers = {"trees": (len(hit), "on it"), "first pause": (1e3 * paused_s, "ms")}
        if all_moved:
            numbers["all moved"] = (1e3 * moved_s, "ms")
        numbers["updates"] = (_updates(stubs) - admitted, "in all")
        yield Reading("death", {"k": k}, numbers)


def _updates(stubs: Mapping[str, StubSwitch]) -> int:
    """Return the number of updates that all switches together have received."""
    return sum(stub.counts["updates"] for stub in stubs.values())


def _cpu_s(pid: int) -> float:
    return cpu_times({"process": pid}).services_s


class _Rank:
    """A rank that has joined. It answers the controller, and remembers when."""

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


async def _controller(topology: Topology, folder: Path, stack: contextlib.AsyncExitStack) -> tuple[str, int]:
    """Start a controller. When it has configured all switches, return its address and its process."""
    path = folder / "topology.yaml"
    path.write_text(to_yaml(topology))
    command = [sys.executable, "-m", "railweave", "controller", "--topology", str(path)]
    command += ["--listen", "127.0.0.1:0", "--slots", str(SLOTS), "--trees", "1"]
    command += ["--switch-deadline", str(READY_S)]
    child = await Child.start("controller", command, folder / "controller.log", asyncio.Queue())
    stack.push_async_callback(child.stop)
    words = (await child.ready(READY_S)).split()
    return words[1].removeprefix("listen="), child.pid


def _at_stubs(topology: Topology, stubs: Mapping[str, StubSwitch]) -> Topology:
    """Return the topology with the stubs' addresses."""
    [plane] = topology.planes
    switches = tuple(
        replace(switch, p4runtime=f"127.0.0.1:{stubs[switch.name].port}", device_id=1)
        for switch in plane.switches
    )
    return replace(topology, planes=(replace(plane, switches=switches),))


async def _join(
    stub: pb_grpc.ControllerStub, topology: Topology, ranks: int, job: int
) -> list[pb.JoinGroupResponse]:
    """Let all ranks of a job join at once."""
    [plane] = topology.planes
    hosts = len(topology.hosts)

    def request(rank: int) -> pb.JoinGroupRequest:
        nic = plane.nics[(job + rank * (hosts // ranks)) % hosts]
        rail = pb.RailOffer(
            name="ina", kind="ina", plane=plane.name, address=nic.address, mac=nic.mac, port=5000 + job
        )
        return pb.JoinGroupRequest(
            job=f"job{job}", rank=rank, size=ranks, rails=[rail], deadline_s=JOIN_S, protocol=PROTOCOL
        )

    try:
        return list(await asyncio.gather(*(stub.JoinGroup(request(rank)) for rank in range(ranks))))
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
