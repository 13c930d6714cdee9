# SPDX-License-Identifier: Apache-2.0
"""A rank forks children. They do not disturb the rank's job, however they end."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from controller_world import served

from railweave.topologies.planes import planes

RANKS = 2
RANK = Path(__file__).with_name("forking_rank.py")


async def test_forked_children_leave_their_parents_job_alone() -> None:
    topology = planes(RANKS, ("tcp", "tcp"))
    on_loopback = tuple(dataclasses.replace(plane, network="127.0.0.0/8") for plane in topology.planes)
    async with served(dataclasses.replace(topology, planes=on_loopback)) as (running, _):
        for status, output in await asyncio.gather(*(rank(running.port, n) for n in range(RANKS))):
            assert (status, output) == (0, "")


async def rank(port: int, number: int) -> tuple[int | None, str]:
    """Run a rank. Return its exit status and output."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, RANK, f"127.0.0.1:{port}", str(number), str(RANKS)),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "GRPC_VERBOSITY": "ERROR"},  # otherwise gRPC logs the fork
        start_new_session=True,  # the child also holds the pipe, so the test kills both
    )
    try:
        output, _ = await process.communicate()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
    return process.returncode, output.decode()
