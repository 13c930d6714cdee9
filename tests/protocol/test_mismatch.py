# SPDX-License-Identifier: Apache-2.0
"""Ranks that call different things all find out, over any rails, with both descriptions."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import pytest
from protocol.jobs import StaticJob, skip_unless_possible
from protocol.loopback_switch import PLACE, LoopbackSwitch

from railweave.hosts.arrays import DTYPES
from railweave.hosts.capabilities import INA_DTYPES, INA_OPS, OPS
from railweave.hosts.communicator import Communicator
from railweave.hosts.errors import CollectiveMismatch
from railweave.hosts.options import parse_rails

RANKS = 3
ODD_ONE = 1


RAILS = [
    "tcp=tcp@lo",
    "ina=ina@lo",
    "rdma=rdma@lo",
    "ina=ina@lo,tcp=tcp@lo",
    "rdma=rdma@lo,ina=ina@lo",
    "tcp=tcp@lo,rdma=rdma@lo,ina=ina@lo",
]


@dataclass(frozen=True)
class Kind:
    """One collective; small ones ride one rail by recursive doubling, large ones are cut."""

    count: int
    dtype: str = "float32"
    op: str = "sum"

    def __str__(self) -> str:
        return f"all_reduce #1 of {self.count} {self.dtype}, {self.op}"

    def fits(self, rails: str) -> bool:
        able = DTYPES[np.dtype(self.dtype).char] in INA_DTYPES and OPS[self.op] in INA_OPS
        return able or "tcp" in rails or "rdma" in rails


KINDS = [
    Kind(10),
    Kind(11),
    Kind(10, op="max"),
    Kind(10, "int32"),
    Kind(10, "float64"),  # not for the switch: other rails alone carry it
    Kind(100_000),
    Kind(100_000, op="prod"),
]


@pytest.mark.parametrize("rails", RAILS)
def test_every_pair_of_kinds(switch: LoopbackSwitch, rails: str) -> None:
    skip_unless_possible(rails)
    for pair in itertools.combinations(KINDS, 2):
        if all(kind.fits(rails) for kind in pair):
            switch.restart()
            assert_found(rails, *pair)


def equal(rails: str) -> dict[str, float]:
    """The same share of large calls for each rail; nothing is learnt, so no surveys are in between."""
    return {rail.name: 1.0 for rail in parse_rails(rails)}


def assert_found(rails: str, common: Kind, odd: Kind) -> None:
    job = StaticJob(RANKS, ina=[PLACE])

    def work(comm: Communicator) -> str:
        comm.all_reduce(np.zeros(3, np.int32))
        job.meet()
        kind = odd if comm.rank == ODD_ONE else common
        with pytest.raises(CollectiveMismatch) as raised:
            comm.all_reduce(np.zeros(kind.count, kind.dtype), kind.op)
        return str(raised.value)

    for text in job.run(work, rails, shares=equal(rails)):
        assert str(common) in text
        assert str(odd) in text


@pytest.mark.parametrize("rails", RAILS)
def test_another_order(switch: LoopbackSwitch, rails: str) -> None:
    """Calls in flight at once; the second of one rank is the first of another."""
    skip_unless_possible(rails)
    job = StaticJob(RANKS, ina=[PLACE])

    def work(comm: Communicator) -> None:
        comm.all_reduce(np.zeros(3, np.int32))
        job.meet()
        kinds = [Kind(100_000), Kind(10, "int32")][:: -1 if comm.rank == ODD_ONE else 1]
        works = [comm.all_reduce(np.zeros(k.count, k.dtype), k.op, async_op=True) for k in kinds]
        for pending in works:
            with pytest.raises(CollectiveMismatch) as raised:
                pending.wait()
        assert "rank 1 calls" in str(raised.value)
        assert "rank 0 calls" in str(raised.value) or "rank 2 calls" in str(raised.value)

    job.run(work, rails, shares=equal(rails))
