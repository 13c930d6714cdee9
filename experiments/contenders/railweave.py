# SPDX-License-Identifier: Apache-2.0
"""railweave, with any rails.

The option `shares` sets the share of each rail in place of learnt shares. The option `roots` is the number of
ranks that multicast at once. The option `kind` replaces the planes' kind for all rails, such as `rdma` on
netreduce planes.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace

import railweave
from railweave.experiments import limits
from railweave.experiments.contenders import Array, Endpoint, Implementation, Job
from railweave.experiments.messages import rail_counts
from railweave.experiments.problem import COLLECTIVES
from railweave.hosts import reports
from railweave.hosts.options import parse_rails
from railweave.topologies.model import Plane

LEARNING = ("cold", "warm", "comparing")


class Kind(Implementation):
    """Joins by the environment that every host's process gets."""

    collectives = COLLECTIVES
    ops = ("sum", "max", "min", "avg")

    def limit_bps(self, plane: Plane, collective: str) -> float:
        """Return the rate that a plane's links allow the rail on this plane."""
        kind = self.contender.options.get("kind", plane.kind)
        return limits.of_railweave(replace(plane, kind=kind), collective)

    def connect(self, job: Job, rank: int) -> Endpoint:
        """Join the job."""
        options = self.contender.options
        rails = parse_rails(os.environ["RAILWEAVE_RAILS"])
        if kind := options.get("kind"):
            rails = tuple(replace(rail, kind=kind) for rail in rails)
        return _Endpoint(railweave.init(rails=rails, multicast_roots=options.get("roots")))


class _Endpoint(Endpoint):
    def __init__(self, comm: railweave.Communicator) -> None:
        self._comm = comm

    def all_reduce(self, given: Array, out: Array, op: str) -> None:
        self._comm.all_reduce(given, op=op, out=out)

    def reduce_scatter(self, given: Array, out: Array, op: str) -> None:
        self._comm.reduce_scatter(given, op=op, out=out)

    def all_gather(self, given: Array, out: Array) -> None:
        self._comm.all_gather(given, out=out)

    def broadcast(self, out: Array, root: int) -> None:
        self._comm.broadcast(out, root=root)

    def all_gather_and_reduce_scatter(
        self, shard: Array, gathered: Array, tensor: Array, own: Array, op: str
    ) -> None:
        works = (
            self._comm.all_gather(shard, out=gathered, async_op=True),
            self._comm.reduce_scatter(tensor, op=op, out=own, async_op=True),
        )
        for work in works:
            work.wait()

    def hot(self, size_bytes: int, collective: str, dtype: str, op: str) -> bool:
        return all(
            self._comm.plan(size_bytes, one, dtype, op).state not in LEARNING for one in collective.split("+")
        )

    def slices(self) -> Sequence[reports.Record]:
        return [record for record in self._comm.drain_records() if not record.survey]

    def counters(self) -> Mapping[str, Mapping[str, float]]:
        return {rail: asdict(counts) for rail, counts in rail_counts(self._comm).items()}

    def versions(self) -> Mapping[str, str]:
        return {"railweave": railweave.__version__}

    def close(self) -> None:
        self._comm.close()
