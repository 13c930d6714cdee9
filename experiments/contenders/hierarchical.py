# SPDX-License-Identifier: Apache-2.0
"""A hierarchical ring over TCP (H-AR): rings inside racks, and rings of racks between them.

It has three stages: a reduce-scatter in each rack's ring, an allreduce of each shard between racks, and an
allgather in each rack. R racks of k ranks take 2 (k - 1) + 2 (R - 1) steps. The rings are those of `ring.py`.
The option `racks` is R. Ranks are numbered rack by rack.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from railweave.experiments import limits
from railweave.experiments.contenders import Array, Contender, Endpoint, Implementation, Job
from railweave.experiments.contenders.ring import MEETING_PORT, Ring
from railweave.experiments.errors import OptionError
from railweave.topologies.model import Plane


class Kind(Implementation):
    """Two rings on one plane for every rank."""

    def __init__(self, contender: Contender) -> None:
        """Take the contender that it runs."""
        super().__init__(contender)
        if "racks" not in contender.options:
            raise OptionError(
                f"contender {contender.name!r} without racks",
                "the option racks",
                "name the contender in a scenario's file, with options = { racks = 2 }",
            )
        self.racks = int(contender.options["racks"])

    def limit_bps(self, plane: Plane, collective: str) -> float:
        """Return the limit of all stages, one after the other.

        Between racks, the ranks of a rack share an uplink, which is as fast as one of their links.
        """
        per_rack = len(plane.nics) // self.racks
        return limits.over_link(plane, 2 * (per_rack - 1) / per_rack + 2 * (self.racks - 1) / self.racks)

    def connect(self, job: Job, rank: int) -> Endpoint:
        """Join the rack's ring, and the ring of the ranks with the same place in their racks."""
        return Hierarchy(rank, job, self.racks)


class Hierarchy(Endpoint):
    """One rank in its two rings."""

    def __init__(self, rank: int, job: Job, racks: int, port: int = MEETING_PORT) -> None:
        """Connect with the ranks of both rings."""
        self._per_rack = job.size // racks
        rack, place = divmod(rank, self._per_rack)
        own = slice(rack * self._per_rack, (rack + 1) * self._per_rack)
        self._rack = Ring(place, _part(job, own), port=port)
        self._across = Ring(rack, _part(job, slice(place, None, self._per_rack)), port=port + 1)

    def all_reduce(self, given: Array, out: Array, op: str) -> None:
        """Reduce over all ranks. The tensor is padded if the rack's ranks do not divide it."""
        shard: Any = np.empty(-(-given.size // self._per_rack), given.dtype)
        whole: Any = given
        gathered: Any = out
        if fill := shard.size * self._per_rack - given.size:
            whole = np.concatenate([given, np.zeros(fill, given.dtype)])
            gathered = np.empty_like(whole)
        self._rack.reduce_scatter(whole, shard, op)
        self._across.all_reduce(shard, shard, op)
        self._rack.all_gather(shard, gathered)
        if fill:
            out[:] = gathered[: out.size]

    def close(self) -> None:
        """Leave both rings."""
        self._across.close()
        self._rack.close()


def _part(job: Job, members: slice) -> Job:
    """The job as the members of one ring see it."""
    addresses = {plane: of[members] for plane, of in job.addresses.items()}
    return replace(job, addresses=addresses)
