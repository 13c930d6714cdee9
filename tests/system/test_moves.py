# SPDX-License-Identifier: Apache-2.0
"""Switches, links and the controller die during collectives on trees of several levels: sums stay exact."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from railweave.experiments.hosts import JobOptions, module_command, start_job
from railweave.topologies.clos import fat_tree, leaf_spine
from railweave.topologies.lab.faults import link_steps
from railweave.topologies.lab.lab import Lab
from railweave.topologies.lab.namespaces import CONTROLLER_NODE
from railweave.topologies.lab.options import LabOptions
from railweave.topologies.model import Topology

ELEMENTS = 1 << 16  # 256 KiB take 23 ms on 100 Mbit/s
DEADLINE_S = 90.0

Fault = Callable[[Lab], Awaitable[None]]


async def sums(topology: Topology, out: Path, faults: Sequence[Fault]) -> dict[str, int]:
    """Sum during one fault after the other, and return the switches' counters at the end.

    A fault begins in the round after the end of the previous fault. A round follows the last fault.
    Every rank checks every sum. LabError names a rank that found a wrong sum or got no sum in time.
    """
    stop = out / "stop"
    async with asyncio.timeout(DEADLINE_S), Lab(topology, LabOptions(out)) as lab:
        command = module_command("system.summing", str(ELEMENTS), str(stop))
        environment = {"PYTHONPATH": str(Path(__file__).parents[1]), "RAILWEAVE_TIMEOUT_S": "40"}
        await start_job(lab, JobOptions("job", command, environment=environment))
        begun: list[asyncio.Task[None]] = []
        seen = []
        async for line in lab.events():
            seen.append(int(line.text.split()[1]))
            if all(task.done() for task in begun):
                if len(begun) == len(faults):
                    stop.touch()
                else:
                    begun.append(asyncio.create_task(faults[len(begun)](lab)))
        await asyncio.gather(*begun)
        assert len(begun) == len(faults)
        assert sorted(seen) == sorted(list(range(max(seen) + 1)) * len(topology.hosts))
        return (await lab.switch_counters())["ina"]


async def kill_spine(lab: Lab) -> None:
    await lab.kill("spine1")


async def cut_trunk(lab: Lab) -> None:
    """Cut the last spine off from a rack while the other spine comes back."""
    lab.do(link_steps(lab.topology, "leaf2", "spine2", "down"))
    await lab.revive("spine1")


async def restart_controller(lab: Lab) -> None:
    await lab.kill(CONTROLLER_NODE)
    await lab.revive(CONTROLLER_NODE)


async def restart_leaf_and_controller(lab: Lab) -> None:
    await lab.kill("leaf1")
    await lab.kill(CONTROLLER_NODE)
    await lab.revive("leaf1")
    await lab.revive(CONTROLLER_NODE)


async def kill_core(lab: Lab) -> None:
    await lab.kill("core1")


def test_two_racks_add_exactly_whatever_dies(tmp_path: Path) -> None:
    faults = (kill_spine, cut_trunk, restart_controller, restart_leaf_and_controller)
    counters = asyncio.run(sums(leaf_spine(2, 2, 2, rails=["ina"]), tmp_path, faults))
    assert counters["result"] > 0


def test_three_levels_add_exactly_when_a_core_dies(tmp_path: Path) -> None:
    topology = fat_tree(pods=2, edges=1, aggs=1, cores=2, hosts=1, rails=["ina"])
    counters = asyncio.run(sums(topology, tmp_path, [kill_core]))
    assert counters["deliver_down"] >= 4 * (ELEMENTS // 256)  # edge and aggregation switches of both pods
