# SPDX-License-Identifier: Apache-2.0
"""Faults at random in a small lab while its ranks sum: `python -m system.random_faults --seed S --faults N`.

Switches and the controller are killed and come back, links are cut and joined, one at a time and together,
at instants that the seed decides; after each repair every rank has to complete more sums. Every sum is
checked, and has a deadline. Of a call that is stuck, the ranks' statistics, the controller's word and the
switches' tables and slots are written beside the logs.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import json
import random
import sys
import time
from pathlib import Path

import numpy as np
from system.summing import numbers

import railweave
from railweave.experiments.hosts import JobOptions, module_command, start_job
from railweave.topologies.clos import leaf_spine
from railweave.topologies.lab.faults import link_steps
from railweave.topologies.lab.lab import Lab
from railweave.topologies.lab.namespaces import CONTROLLER_NODE
from railweave.topologies.lab.options import LabOptions
from railweave.topologies.model import Topology

ELEMENTS = 1 << 14  # 64 KiB
STUCK_S, DEADLINE_S = 6.0, 20.0  # of a call: until its statistics are shown, until it has failed
REGISTERS = ("slot_tag", "slot_seen")


def rank() -> None:
    """Sum for ever; print `round N` after every sum, or `stuck N` and statistics when it takes long."""
    with railweave.init() as comm:
        for round_ in range(sys.maxsize):
            mine = numbers(comm.rank, round_, ELEMENTS)
            work = comm.all_reduce(mine, async_op=True)
            try:
                work.wait(STUCK_S)
            except TimeoutError:
                _tell(round_, comm)
            try:
                result = work.wait(DEADLINE_S - STUCK_S)
            except TimeoutError:
                _tell(round_, comm)
                raise
            expected = np.zeros(ELEMENTS, np.int32)
            for peer in range(comm.world_size):
                expected += numbers(peer, round_, ELEMENTS)
            np.testing.assert_array_equal(result, expected)
            print(f"round {round_}", flush=True)


def _tell(round_: int, comm: railweave.Communicator) -> None:
    print(f"{comm.stats()}; {comm.why()}", file=sys.stderr, flush=True)
    print(f"stuck {round_}", flush=True)


class Faults:
    """Draws what happens, and lets it happen."""

    def __init__(self, lab: Lab, seed: int) -> None:
        """Everything works so far."""
        self._lab = lab
        self._rng = random.Random(seed)
        plane = lab.topology.planes[0]
        self._switches = [switch.name for switch in plane.switches]
        self._spines = [name for name in self._switches if name.startswith("spine")]
        self._links = [(t.lower, t.upper) for t in plane.trunks] + [(n.host, n.switch) for n in plane.nics]

    async def one(self) -> str:
        """A fault of one to three parts, and its repair; says which."""
        kinds = [self._spine_and_back, self._any_switch, self._both_spines, self._link, self._controller]
        chosen = self._rng.sample(kinds, self._rng.choice((1, 1, 2, 2, 3)))
        if self._both_spines in chosen:
            chosen = [k for k in chosen if k not in (self._spine_and_back, self._any_switch)]
        if self._any_switch in chosen and self._spine_and_back in chosen:
            chosen.remove(self._any_switch)
        return " + ".join(await asyncio.gather(*(kind() for kind in chosen)))

    async def _pause(self, most_s: float) -> None:
        await asyncio.sleep(self._rng.uniform(0, most_s))

    async def _outage(self, name: str) -> str:
        await self._pause(0.2)
        await self._lab.kill(name)
        await self._pause(self._rng.choice((0.0, 0.1, 1.5)))
        await self._lab.revive(name)
        return name

    async def _spine_and_back(self) -> str:
        return await self._outage(self._rng.choice(self._spines))

    async def _any_switch(self) -> str:
        return await self._outage(self._rng.choice(self._switches))

    async def _both_spines(self) -> str:
        return "both: " + ", ".join(await asyncio.gather(*map(self._outage, self._spines)))

    async def _controller(self) -> str:
        await self._pause(0.5)
        return await self._outage(CONTROLLER_NODE)

    async def _link(self) -> str:
        link = self._rng.choice(self._links)
        await self._pause(0.3)
        self._lab.do(link_steps(self._lab.topology, *link, "down"))
        await self._pause(1.5)
        self._lab.do(link_steps(self._lab.topology, *link, "up"))
        return "-".join(link)


async def dump(lab: Lab, topology: Topology, out: Path) -> None:
    """Write what the controller and the switches say."""
    commands = {"why": (CONTROLLER_NODE, ["why", "--controller", lab.controller])}
    for switch in topology.planes[0].switches:
        grpc = ["--grpc", switch.p4runtime, "--device-id", str(switch.device_id)]
        commands[f"{switch.name}-tables"] = (CONTROLLER_NODE, ["switch", "tables", *grpc, "members"])
        commands[f"{switch.name}-groups"] = (CONTROLLER_NODE, ["switch", "groups", *grpc])
        commands[f"{switch.name}-registers"] = (CONTROLLER_NODE, ["switch", "registers", *grpc])
        for register in REGISTERS:
            arguments = ["switch", "registers", *grpc, register, "0:2048"]
            commands[f"{switch.name}-{register}"] = (CONTROLLER_NODE, arguments)
    for name, (node, arguments) in commands.items():
        command = lab.run_in(node, [sys.executable, "-m", "railweave", *arguments])
        process = await asyncio.create_subprocess_exec(
            *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        said, _ = await process.communicate()
        (out / f"stuck-{name}.txt").write_bytes(said)
    (out / "stuck-counters.json").write_text(json.dumps(await lab.switch_counters()))


async def run(seed: int, faults: int, hosts: int, slots: int, out: Path) -> None:
    """So many faults in one lab; the first call that is stuck or wrong ends it with an error."""
    topology = leaf_spine(2, hosts, 2, rails=["ina"])
    options = LabOptions(out, controller=["--quota", f"slots={slots},trees=4"])
    async with Lab(topology, options) as lab:
        command = module_command("system.random_faults", "--rank")
        environment = {"PYTHONPATH": str(Path(__file__).parents[1])}
        await start_job(lab, JobOptions("job", command, environment=environment))
        done = collections.Counter[str]()
        progress = asyncio.Condition()
        dumps: list[asyncio.Task[None]] = []

        async def follow() -> None:
            async for line in lab.events():
                if line.text.startswith("stuck"):
                    print(f"seed {seed}: {line.child.name} is {line.text}", flush=True)
                    if not dumps:
                        dumps.append(asyncio.create_task(dump(lab, topology, out)))
                    continue
                async with progress:
                    done[line.child.name] = int(line.text.split()[1])
                    progress.notify_all()

        async def all_reach(rounds: int) -> None:
            async with progress:
                await progress.wait_for(
                    lambda: len(done) == len(topology.hosts) and min(done.values()) >= rounds
                )

        async def harm() -> None:
            source = Faults(lab, seed)
            await all_reach(3)
            for number in range(faults):
                begin = time.monotonic()
                what = await source.one()
                repaired = time.monotonic()
                await all_reach(max(done.values()) + 3)
                print(
                    f"seed {seed} fault {number}: {what}; {repaired - begin:.2f} s, "
                    f"{time.monotonic() - repaired:.2f} s more; round {max(done.values())}",
                    flush=True,
                )

        following, harming = asyncio.create_task(follow()), asyncio.create_task(harm())
        finished, _ = await asyncio.wait((following, harming), return_when=asyncio.FIRST_COMPLETED)
        for task in (following, harming):
            task.cancel()
        await asyncio.gather(*dumps)
        failed = [error for task in finished if (error := task.exception())]
        if failed:
            raise failed[0]


def main() -> None:
    """Read options."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rank", action="store_true", help="be one of the ranks")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", type=int, default=30)
    parser.add_argument("--hosts", type=int, default=1, help="per rack")
    parser.add_argument("--slots", type=int, default=64, help="of the job")
    parser.add_argument("--out", type=Path, default=Path("out"))
    given = parser.parse_args()
    if given.rank:
        rank()
    else:
        asyncio.run(run(given.seed, given.faults, given.hosts, given.slots, given.out))


if __name__ == "__main__":
    main()
