# SPDX-License-Identifier: Apache-2.0
"""A stranger that sees no traffic forges frames of every kind on a job's planes. Sums and job stay right."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from dataplane.packets import Station
from hostile import forging
from hostile.forging import Target
from hostile.stranger import station_of, stranger_on
from system.namespaces import inside_process

from railweave.controller.addresses import AddressPlan
from railweave.topologies.lab import guard
from railweave.topologies.lab.lab import Lab
from railweave.topologies.lab.options import LabOptions
from railweave.topologies.model import Plane
from railweave.topologies.planes import planes

DEADLINE_S = 60.0
COUNT = 1000  # forged frames of each kind and source: all of them fit into a port's receive buffer
FIRST, BEHIND = 32768, 61000  # range of the kernel's ephemeral ports
RANK = """
import numpy as np
import railweave
from pathlib import Path
x = np.arange(10_000, dtype=np.int32)
wrong = calls = stop = 0
with railweave.init(rails={rails!r}, controller={controller!r}) as comm:
    while not stop:
        wrong += int((comm.all_reduce(x) != 2 * x).sum())
        stop = comm.all_reduce(np.int32([Path({stop!r}).exists()]))[0]
        calls += 1
        if calls == 3:
            print("runs", flush=True)
print("wrong", wrong, flush=True)
"""


def spray(lab: Lab, plane: Plane) -> int:
    """Let the host h3 forge frames with the addresses of the switch, the group and a member.

    Return the number of frames.
    """
    member, other, stranger = plane.nics
    plan = AddressPlan(plane)
    names = [station_of(other), *(Station(e.ip, e.mac) for e in plan.switches.values())]
    group = plan.choose(())
    names.append(Station(group, 0x02FE << 32 | group))
    with inside_process(lab.pid("h3")), stranger_on(stranger) as attacker:
        ports = attacker.scan(station_of(member), range(FIRST, BEHIND)) or [FIRST]
        places = [Target(station_of(member), port) for port in ports]
        return sum(
            attacker.spray(kind, name, to, COUNT // len(places))
            for kind in forging.KINDS
            for name in names
            for to in places
        )


async def dropped(lab: Lab, plane: Plane) -> int:
    (switch,) = plane.switches
    if switch.p4runtime:
        return (await lab.switch_counters())[plane.name]["forged_sources"]
    return guard.dropped(lab.read(switch.name, guard.COUNT_COMMAND))


def test_forged_frames_change_neither_sums_nor_the_job_and_are_counted(tmp_path: Path) -> None:
    async def run() -> None:
        topology, stop = planes(3, ["ina", "tcp", "rdma", "netreduce"], 0), tmp_path / "stop"
        async with asyncio.timeout(DEADLINE_S), Lab(topology, LabOptions(tmp_path / "lab")) as lab:
            for rank, host in enumerate(topology.hosts[:2]):
                rails = ",".join(f"{p.name}={p.kind}@{p.nics[rank].interface}" for p in topology.planes)
                program = RANK.format(rails=rails, controller=lab.controller, stop=str(stop))
                identity = {"RANK": str(rank), "WORLD_SIZE": "2", "RAILWEAVE_JOB": "strangers"}
                await lab.start_worker(host, f"rank {rank}", [sys.executable, "-c", program], identity)
            said: list[str] = []
            sent: dict[str, int] = {}
            async for line in lab.events():
                said.append(line.text.strip())
                if said.count("runs") == 2 and not sent:
                    for plane in topology.planes:
                        sent[plane.name] = await asyncio.to_thread(spray, lab, plane)
                    stop.touch()
            assert [text for text in said if text.startswith("wrong")] == ["wrong 0"] * 2
            assert {plane.name: await dropped(lab, plane) for plane in topology.planes} == sent

    asyncio.run(run())
