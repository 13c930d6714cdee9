# SPDX-License-Identifier: Apache-2.0
"""The netreduce rail in a lab: sums in the switch, sums on the hosts, restarts of switch and controller."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from protocol.jobs import StaticJob
from system.command import Start
from system.plane_network import plane_network

from railweave.experiments.hosts import JobOptions, start_job
from railweave.hosts.communicator import Communicator
from railweave.hosts.errors import CollectiveMismatch
from railweave.hosts.events import Sums
from railweave.topologies.clos import leaf_spine
from railweave.topologies.lab.faults import queue_pair_ended
from railweave.topologies.lab.lab import Lab
from railweave.topologies.lab.namespaces import CONTROLLER_NODE
from railweave.topologies.lab.options import LabOptions
from railweave.topologies.model import Topology
from railweave.topologies.planes import planes

DEADLINE_S = 90.0
SWITCH = "s-nr"
SURVIVED = "survived"  # a file that exists after a fault that the rail may survive

PROGRAM = """
import json
import os
import subprocess
import sys
import numpy as np
import railweave

rails = os.environ["RAILWEAVE_RAILS"].replace("=netreduce@", f"={sys.argv[1]}@")
with railweave.init(rails=rails) as comm:
    n, chunks = comm.world_size, 0

    def check(numbers, op, expected, tolerance):
        global chunks
        got = comm.all_reduce(numbers[comm.rank], op=op)
        if numbers[0].nbytes > 4096 and op in ("sum", "avg"):
            chunks += -(-numbers[0].size // 256) * (1 if np.isfinite(numbers).all() else 2)
        np.testing.assert_allclose(got, expected, rtol=0, atol=tolerance)
        every = comm.all_gather(got.view(np.uint8)).reshape(n, -1)
        assert (every == every[0]).all()  # the same bits on all ranks

    rng = np.random.default_rng(1)
    for count in (1, 1025, 2049, 100_003):
        integers = [rng.integers(-(2**31), 2**31, count).astype(np.int32) for _ in range(n)]
        check(integers, "sum", np.sum(integers, axis=0, dtype=np.int32), 0)
        check(integers, "max", np.max(integers, axis=0), 0)
        floats = [rng.standard_normal(count).astype(np.float32) for _ in range(n)]
        exact = np.sum(np.array(floats, np.float64), axis=0)
        check(floats, "sum", exact, 1e-5)
        check(floats, "avg", exact / n, 1e-5)
    floats[1][7], floats[2][7], floats[0][9], floats[1][1000] = np.inf, np.inf, -np.inf, np.nan
    with np.errstate(invalid="ignore"):
        check(floats, "sum", np.sum(floats, axis=0), 1e-5)
    comm.barrier()
    if comm.rank == 0:
        module = "railweave.topologies.lab.switch_counters"
        command = [sys.executable, "-m", module, comm.options.controller]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        counts = json.loads(done.stdout)["netreduce"]
        print("added", counts["result"], "down", counts["deliver_down"], "of", chunks, file=sys.stderr)
"""

REPEATED = """
import pathlib
import sys
import time
import numpy as np
import railweave

latest = time.monotonic() + 60
survived = pathlib.Path(sys.argv[1])
with railweave.init(timeout_s=40) as comm:
    carried = bytes_now = 0
    back = np.zeros(1, np.int32)
    for round_ in range(10**6):
        mine = np.random.default_rng((comm.rank, round_)).integers(-(2**31), 2**31, 1 << 17, np.int32)
        every = [
            np.random.default_rng((rank, round_)).integers(-(2**31), 2**31, 1 << 17, np.int32)
            for rank in range(comm.world_size)
        ]
        np.testing.assert_array_equal(comm.all_reduce(mine), np.sum(every, axis=0, dtype=np.int32))
        rail = next(rail for rail in comm.stats().rails if rail.name == "netreduce")
        print(f"round {round_} {rail.incarnation} {rail.payload_bytes}", flush=True)
        if (rail.incarnation > 0 or survived.exists()) and not bytes_now:
            bytes_now = rail.payload_bytes
        back[0] = bytes_now > 0 and rail.payload_bytes > bytes_now + (1 << 20)
        if comm.all_reduce(back, op="min")[0] or time.monotonic() > latest:
            break
    assert back[0], "the rail is not used again"
"""


RACKS = ("--topology", "leaf-spine:racks=2,hosts=2")


@pytest.mark.parametrize(
    ("kind", "where", "leaves"),
    [("netreduce", ("--hosts", "3"), 0), ("netreduce", RACKS, 2), ("rdma", ("--hosts", "3"), 0)],
    ids=["netreduce", "netreduce-racks", "rdma"],
)
def test_the_switch_adds_what_it_can_and_hosts_do_the_rest(
    start: Start, tmp_path: Path, kind: str, where: Sequence[str], leaves: int
) -> None:
    """With racks, the root adds the sums of the leaves, and each leaf forwards the result once."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    command = start(
        *("run", *where, "--rails", "netreduce", "--rate", "0"),
        *("--", sys.executable, str(program), kind),
    )
    said, phases = command.process.communicate()
    assert command.process.returncode == 0, said + phases
    (line,) = [line for line in said.splitlines() if "added" in line]
    _, added, _, down, _, chunks = line.split("] ")[1].split()
    assert int(chunks) > 0
    assert int(added) == (int(chunks) if kind == "netreduce" else 0)
    assert int(down) == leaves * int(added)


async def restart_switch(lab: Lab, name: str = SWITCH) -> None:
    await lab.kill(name)
    await lab.revive(name)


async def restart_leaf(lab: Lab) -> None:
    await restart_switch(lab, "leaf2")


async def end_root(lab: Lab) -> None:
    """End the spine that adds. The other spine stays."""
    await lab.kill("spine1")
    (lab.out.parent / SURVIVED).touch()


async def restart_controller(lab: Lab) -> None:
    await lab.kill(CONTROLLER_NODE)
    await lab.revive(CONTROLLER_NODE)


async def end_queue_pair(lab: Lab) -> None:
    lab.do(queue_pair_ended(lab.topology.plane("netreduce"), "h2").inject)


RAILS = ["netreduce", "tcp"]
ONE_SWITCH, RACKS_OF_TWO = planes(3, RAILS), leaf_spine(2, 2, 1, rails=RAILS)
TWO_SPINES = leaf_spine(2, 2, 2, rails=RAILS)


@pytest.mark.parametrize(
    ("topology", "fault"),
    [
        (ONE_SWITCH, restart_switch),
        (ONE_SWITCH, restart_controller),
        (ONE_SWITCH, end_queue_pair),
        (RACKS_OF_TWO, restart_leaf),
        (TWO_SPINES, end_root),
    ],
    ids=lambda value: getattr(value, "__name__", value.name if isinstance(value, Topology) else value),
)
def test_the_rail_is_used_again_after_a_failure(
    tmp_path: Path, topology: Topology, fault: Callable[[Lab], Awaitable[None]]
) -> None:
    """All sums are exact during the failure. A restarted controller removes the ring and adds it again."""
    program = tmp_path / "program.py"
    program.write_text(REPEATED)

    async def run() -> dict[str, int]:
        async with asyncio.timeout(DEADLINE_S), Lab(topology, LabOptions(tmp_path / "lab")) as lab:
            command = [sys.executable, str(program), str(tmp_path / SURVIVED)]
            await start_job(lab, JobOptions("job", command))
            done: asyncio.Task[None] | None = None
            async for line in lab.events():
                assert line.text.startswith("round")
                if done is None and int(line.text.split()[3]) > 0:  # the rail carries data
                    done = asyncio.create_task(fault(lab))
            assert done is not None
            await done
            return (await lab.switch_counters())["netreduce"]

    assert asyncio.run(run())["result"] > 0


def test_ranks_that_call_different_things_find_out_before_anything_is_added() -> None:
    """The network has no switch that adds, because the check does not need one."""

    meeting = StaticJob(3, sums=[Sums("netreduce", 64)])

    def call(comm: Communicator) -> str:
        meeting.meet()  # a rank that still connects its rails would find out there
        with pytest.raises(CollectiveMismatch) as raised:
            comm.all_reduce(np.zeros(5000 + comm.rank, np.int32))
        return str(raised.value)

    with plane_network(3, ["netreduce"]) as network, network.ranks(call, meeting) as futures:
        for future in futures:
            assert re.search(r"of 500\d int32.*of 500\d int32", future.result(2 * DEADLINE_S)), (
                future.result()
            )
