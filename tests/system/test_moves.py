# SPDX-License-Identifier: Apache-2.0
"""Switches, links, queue pairs and the controller die during collectives on rails that switches add for.

All sums stay exact, and after each fault the rail carries data again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from railweave.experiments.hosts import JobOptions, module_command, start_job
from railweave.topologies.clos import fat_tree, leaf_spine
from railweave.topologies.lab.faults import link_steps, queue_pair_ended
from railweave.topologies.lab.lab import Lab
from railweave.topologies.lab.namespaces import CONTROLLER_NODE
from railweave.topologies.lab.options import LabOptions
from railweave.topologies.lab.processes import Child
from railweave.topologies.model import Topology
from railweave.topologies.planes import planes

ELEMENTS = 1 << 16  # 256 KiB take 23 ms on 100 Mbit/s
DEADLINE_S = 90.0
USED = 1 << 20  # bytes that every rank's rail carries after a fault, before the next one

Fault = Callable[[Lab], Awaitable[None]]


async def sums(topology: Topology, out: Path, faults: Sequence[Fault]) -> dict[str, int]:
    """Sum during one fault after the other. Return the counters of the first plane's switches at the end.

    A fault begins when every rank's first rail carries data again after the previous fault. A netreduce rail
    restarts by every fault except `kill_spine`. LabError names a rank without the right sum in time.
    """
    stop = out / "stop"
    async with asyncio.timeout(DEADLINE_S), Lab(topology, LabOptions(out)) as lab:
        command = module_command("system.summing", str(ELEMENTS), str(stop))
        environment = {"PYTHONPATH": str(Path(__file__).parents[1]), "RAILWEAVE_TIMEOUT_S": "40"}
        await start_job(lab, JobOptions("job", command, environment=environment))
        left, fault = list(faults), asyncio.create_task(asyncio.sleep(0))
        seen: list[int] = []
        restarts: dict[Child, int] = {}
        carried: dict[Child, int] = {}  # bytes
        wanted: dict[Child, int] = {}  # bytes until the next fault; empty while the rail is not back
        expected = 0  # restarts
        async for line in lab.events():
            round_, restarts[line.child], carried[line.child] = map(int, line.text.split()[1:])
            seen.append(round_)
            if not fault.done() or len(carried) < len(topology.hosts):
                continue
            if not wanted and min(restarts.values()) >= expected:
                wanted = {rank: before + USED for rank, before in carried.items()}
            if wanted and all(carried[rank] >= least for rank, least in wanted.items()):
                if left:
                    following, wanted = left.pop(0), {}
                    restarting = topology.planes[0].kind == "netreduce" and following is not kill_spine
                    expected = max(restarts.values()) + restarting
                    fault = asyncio.create_task(following(lab))
                else:
                    stop.touch()
        await fault
        assert not left
        assert sorted(seen) == sorted(list(range(max(seen) + 1)) * len(topology.hosts))
        return (await lab.switch_counters())[topology.planes[0].name]


async def kill_spine(lab: Lab) -> None:
    await lab.kill("spine1")


async def cut_trunk(lab: Lab) -> None:
    """Cut the last spine off from a rack while the other spine comes back."""
    lab.do(link_steps(lab.topology, "leaf2", "spine2", "down"))
    await lab.revive("spine1")


async def restart(lab: Lab, *names: str) -> None:
    for name in names:
        await lab.kill(name)
    for name in names:
        await lab.revive(name)


async def restart_controller(lab: Lab) -> None:
    await restart(lab, CONTROLLER_NODE)


async def restart_leaf(lab: Lab) -> None:
    await restart(lab, "leaf2")


async def restart_leaf_and_controller(lab: Lab) -> None:
    await restart(lab, "leaf1", CONTROLLER_NODE)


async def restart_switch(lab: Lab) -> None:
    await restart(lab, lab.topology.planes[0].switches[0].name)


async def end_queue_pair(lab: Lab) -> None:
    lab.do(queue_pair_ended(lab.topology.planes[0], "h2").inject)


async def kill_core(lab: Lab) -> None:
    await lab.kill("core1")


NETREDUCE = ("netreduce", "tcp")
THREE_LEVELS = fat_tree(pods=2, edges=1, aggs=1, cores=2, hosts=1, rails=["ina"])


@pytest.mark.parametrize(
    ("topology", "faults"),
    [
        (
            leaf_spine(2, 2, 2, rails=["ina"]),
            (kill_spine, cut_trunk, restart_controller, restart_leaf_and_controller),
        ),
        (THREE_LEVELS, (kill_core,)),
        (planes(3, NETREDUCE), (restart_switch, restart_controller, end_queue_pair)),
        (leaf_spine(2, 2, 2, rails=NETREDUCE), (restart_leaf, kill_spine)),
    ],
    ids=["ina in racks", "ina on three levels", "netreduce at one switch", "netreduce in racks"],
)
def test_sums_are_exact_whatever_dies(tmp_path: Path, topology: Topology, faults: Sequence[Fault]) -> None:
    """A controller that restarts removes a ring of RDMA connections, and adds it again."""
    counters = asyncio.run(sums(topology, tmp_path, faults))
    assert counters["result"] > 0
    if topology is THREE_LEVELS:
        assert counters["deliver_down"] >= 4 * (ELEMENTS // 256)  # edge and aggregation switches of both pods
