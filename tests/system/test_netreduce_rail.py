# SPDX-License-Identifier: Apache-2.0
"""The netreduce rail in a lab: sums in the switches and sums on the hosts."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from protocol.jobs import StaticJob
from system.command import Start
from system.plane_network import plane_network

from railweave.hosts.communicator import Communicator
from railweave.hosts.errors import CollectiveMismatch
from railweave.hosts.events import Sums

DEADLINE_S = 90.0

PROGRAM = """
import json
import subprocess
import sys
import numpy as np
import railweave

with railweave.init() as comm:
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

RACKS = ("--topology", "leaf-spine:racks=2,hosts=2")


@pytest.mark.parametrize(
    ("where", "leaves"), [(("--hosts", "3"), 0), (RACKS, 2)], ids=["one switch", "racks"]
)
def test_the_switch_adds_what_it_can_and_hosts_do_the_rest(
    start: Start, tmp_path: Path, where: Sequence[str], leaves: int
) -> None:
    """With racks, the root adds the sums of the leaves, and each leaf forwards the result once."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    command = start(
        *("run", *where, "--rails", "netreduce", "--rate", "0", "--", sys.executable, str(program))
    )
    said, phases = command.process.communicate()
    assert command.process.returncode == 0, said + phases
    (line,) = [line for line in said.splitlines() if "added" in line]
    _, added, _, down, _, chunks = line.split("] ")[1].split()
    assert int(added) == int(chunks) > 0
    assert int(down) == leaves * int(added)


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
