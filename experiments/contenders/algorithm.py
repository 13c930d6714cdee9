# SPDX-License-Identifier: Apache-2.0
"""In-network algorithms as contenders. The kind is the algorithm's name, and the options are its own."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from railweave import sdk
from railweave.experiments.contenders import Array, Contender, Endpoint, Implementation, Job
from railweave.experiments.contenders.ring import meet
from railweave.experiments.problem import GREATEST_FLOAT32
from railweave.hosts.limits import ETHERNET, IPV4, LANE_BYTES, UDP
from railweave.sdk.compile import require_current
from railweave.sdk.sockets import Driver
from railweave.topologies.lab.namespaces import CONTROLLER_NODE
from railweave.topologies.model import Plane
from railweave.topologies.serialize import load

if TYPE_CHECKING:
    from railweave.topologies.lab.lab import Lab

MEETING_PORT = 29600  # of job 0; before the first call, and after the last


class Kind(Implementation):
    """One job on one plane. The plane's P4 switches run the algorithm's program meanwhile."""

    def __init__(self, contender: Contender) -> None:
        """Take the contender that it runs."""
        super().__init__(contender)
        self.algorithm = sdk.find(contender.kind)
        require_current(self.algorithm)
        self.ops = self.algorithm.manifest.operations
        self.dtypes = self.algorithm.manifest.dtypes
        self.algorithm.job(0, 1, contender.options)  # checks the options

    def limit_bps(self, plane: Plane, collective: str) -> float:
        """Return the limit of the link that carries the tensor most often."""
        payload = LANE_BYTES * self.algorithm.manifest.lanes[0]
        frame = payload + self.algorithm.manifest.header_bytes + UDP + IPV4 + ETHERNET
        return plane.rate_bps * payload / frame / self.algorithm.crossings(plane)

    def error_bound(self, ranks: int) -> float:
        """Return the error that the algorithm states for the largest inputs of a problem."""
        return self.algorithm.error_bound([np.full(1, GREATEST_FLOAT32, np.float32)] * ranks)

    @contextlib.asynccontextmanager
    async def on_lab(self, lab: Lab, job: Job) -> AsyncIterator[dict[str, Any]]:
        """Take the switches from the controller for one run. Yield the switches' counts."""
        async with switches(lab, job.planes[0], self.contender.kind, 1, self.contender.options) as counts:
            yield counts

    def connect(self, job: Job, rank: int) -> Endpoint:
        """Join the job."""
        return Rank(self.algorithm, job, rank)


class Rank(Endpoint):
    """One rank. The host of rank 0 also runs the parameter server, if there is one, as a separate process."""

    def __init__(self, algorithm: sdk.Algorithm, job: Job, rank: int, number: int = 0) -> None:
        """Open the socket. Return when all ranks and the server have opened theirs.

        `number` counts the jobs on the same switches.
        """
        self.algorithm, self.rank, self.ranks = algorithm, rank, job.size
        addresses, ports = job.addresses[job.planes[0]], algorithm.manifest
        self._timeout_s = job.timeout_s
        self._server: subprocess.Popen[bytes] | None = None
        self._meeting = rank, job.size, (addresses[0], MEETING_PORT + number)
        to = addresses[(rank + 1) % job.size], ports.rank_port(number)
        if algorithm.server:
            to = addresses[0], ports.server_port(number)
            if rank == 0:
                self._server = _serve(job, number)
        endpoint = algorithm.endpoint(algorithm.job(number, job.size, job.contender.options), rank)
        self._driver = Driver(endpoint, (addresses[rank], ports.rank_port(number)), to)
        self._meet()

    def all_reduce(self, given: Array, out: Array, op: str) -> None:
        """Make one call."""
        out[:] = self.call(given, op)

    def call(self, given: Array, op: str) -> Array:
        """Make one call, whose result may have another size than `given`."""
        self.failed = True
        result = self._driver.call(given, op, self._timeout_s)
        self.failed = False
        return result

    @property
    def resends(self) -> int:
        """Number of datagrams that this rank has sent again."""
        return self._driver.endpoint.resends

    def counters(self) -> Mapping[str, Mapping[str, float]]:
        """Return how many packets were sent again."""
        return {"algorithm": {"retransmissions": self.resends}}

    def close(self) -> None:
        """Leave together with all ranks, because others may need answers of this host until then."""
        if not self.failed:
            self._meet()
        self._driver.close()
        if self._server is not None:
            self._server.terminate()
            self._server.wait()

    def _meet(self) -> None:
        meet(*self._meeting, 0, time.monotonic() + self._timeout_s)


def joined(kind: str, topology: str, plane_name: str, timeout_s: float, number: int = 0) -> Rank:
    """Join a job on a plane of a topology file, as the rank of the environment variable RANK."""
    plane = load(topology).plane(plane_name)
    addresses = {plane.name: tuple(nic.address for nic in plane.nics)}
    ranks, contender = len(plane.nics), Contender(kind, kind)
    job = Job(contender, ranks, (plane.name,), addresses, "", timeout_s, {}, topology=topology)
    return Rank(sdk.find(kind), job, int(os.environ["RANK"]), number)


def _serve(job: Job, number: int) -> subprocess.Popen[bytes]:
    contender = job.contender
    words = [contender.kind, job.topology, job.planes[0], str(number), json.dumps(dict(contender.options))]
    server = subprocess.Popen([sys.executable, "-m", "railweave.sdk.serve", *words], stdout=subprocess.PIPE)
    assert server.stdout is not None  # noqa: S101
    if not server.stdout.readline():
        raise OSError("the parameter server has not started")
    return server


@contextlib.asynccontextmanager
async def switches(
    lab: Lab, plane: str, kind: str, jobs: int, options: Mapping[str, Any]
) -> AsyncIterator[dict[str, Any]]:
    """Let a plane's P4 switches run an algorithm for `jobs` jobs.

    The yielded mapping gets the switches' counts at the end. The controller is stopped meanwhile, because it
    would configure the switches for railweave again.
    """
    counts: dict[str, Any] = {}
    if not any(switch.p4runtime for switch in lab.topology.plane(plane).switches):
        yield counts
        return
    words = [
        kind,
        str(lab.topology_file.absolute()),
        plane,
        str(jobs),
        json.dumps(dict(options)),
        str(lab.loss(plane)),
    ]
    command = [sys.executable, "-m", "railweave.sdk.fill", *words]
    failed = (
        f"the switches could not be filled for {kind}",
        "an answer of each switch",
        "read the switches' logs",
    )
    await lab.kill(CONTROLLER_NODE)
    try:
        await lab.ask(command, *failed)
        await lab.programs_compiled()
        yield counts
        counts |= await lab.ask(command, *failed)
    finally:
        await lab.revive(CONTROLLER_NODE)
