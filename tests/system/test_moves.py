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

ELEMENTS = 1 << 18  # 1 MiB takes 90 ms on 100 Mbit/s
DEADLINE_S = 90.0

Fault = Callable[[Lab], Awaitable[None]]


async def sums(topology: Topology, out: Path, rounds: int, faults: Sequence[Fault]) -> dict[str, int]:
    """Run `rounds` sums with one fault after the other, and return the switches' counters at the end.

    A fault begins in the round after the end of the previous fault. All faults begin before the last round.
    Every rank checks every sum. LabError names a rank that found a wrong sum or got no sum in time.
    """
    async with asyncio.timeout(DEADLINE_S), Lab(topology, LabOptions(out)) as lab:
        command = module_command("system.summing", str(rounds), str(ELEMENTS))
        environment = {"PYTHONPATH": str(Path(__file__).parents[1]), "RAILWEAVE_TIMEOUT_S": "40"}
        await start_job(lab, JobOptions("job", command, environment=environment))
        begun: list[asyncio.Task[None]] = []
        seen = []
        async for line in lab.events():
            _, number, _ = line.text.split()
            seen.append(int(number))
            if len(begun) < len(faults) and all(task.done() for task in begun):
                begun.append(asyncio.create_task(faults[len(begun)](lab)))
        await asyncio.gather(*begun)
        assert len(begun) == len(faults)
        assert sorted(seen) == sorted(list(range(rounds)) * len(topology.hosts))
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
    counters = asyncio.run(sums(leaf_spine(2, 2, 2, rails=["ina"]), tmp_path, 80, faults))
    assert counters["result"] > 0


def test_three_levels_add_exactly_when_a_core_dies(tmp_path: Path) -> None:
    topology = fat_tree(pods=2, edges=1, aggs=1, cores=2, hosts=1, rails=["ina"])
    counters = asyncio.run(sums(topology, tmp_path, 6, [kill_core]))
    assert counters["deliver_down"] >= 4 * (ELEMENTS // 256)  # edge and aggregation switches of both pods
