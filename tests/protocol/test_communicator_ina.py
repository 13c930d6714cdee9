# SPDX-License-Identifier: Apache-2.0
"""Communicators with an in-network rail, alone and beside TCP; the switch is the model, on loopback."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
import pytest
from protocol.jobs import StaticJob
from protocol.loopback_switch import GROUP, LANES, SLOTS, LoopbackSwitch
from railweave._native import ina
from railweave.hosts.communicator import Communicator
from railweave.hosts.decisions import Reason
from railweave.hosts.errors import CollectiveMismatch, PeerLost, UnsupportedDType
from railweave.hosts.events import InaGroup

RANKS = 3


@pytest.fixture
def job() -> Iterator[StaticJob]:
    address = f"127.{os.getpid() >> 8 & 255}.{os.getpid() & 255}.57"  # tests may run side by side
    switch = LoopbackSwitch(address, RANKS)
    group = InaGroup("ina", GROUP, address, ina.UDP_PORT, child=0, slots=SLOTS, lanes=LANES, depth=1)
    yield StaticJob(RANKS, ina=[group])
    switch.close()


@pytest.mark.parametrize("rails", ["ina=ina@lo", "ina=ina@lo,tcp=tcp@lo"])
@pytest.mark.parametrize("count", [3, 30_000])
def test_sum(job: StaticJob, rails: str, count: int) -> None:
    def work(comm: Communicator) -> None:
        ones = np.ones(count, np.float32)
        np.testing.assert_array_equal(comm.all_reduce(ones), RANKS * ones)
        used = {record.rail for record in comm.drain_records()}
        assert used == ({"ina"} if count == 3 else {rail.split("=")[0] for rail in rails.split(",")})
        job.meet()

    job.run(work, rails)


def test_what_the_switch_lacks_goes_by_tcp_and_why_says_so(job: StaticJob) -> None:
    def work(comm: Communicator) -> None:
        for values, op in ((np.full(9, 3.0), "sum"), (np.full(9, 3, np.int32), "prod")):
            np.testing.assert_array_equal(comm.all_reduce(values, op), RANKS * values if op == "sum" else 27)
        reasons = [(d.rail, d.dtype, d.used, d.reason) for d in comm.why()]
        assert reasons == [
            ("ina", "float64", False, Reason.DTYPE),
            ("tcp", "float64", True, ""),
            ("ina", "int32", False, Reason.OP),
            ("tcp", "int32", True, ""),
        ]
        job.meet()

    job.run(work, "ina=ina@lo,tcp=tcp@lo")


def test_without_another_rail_the_error_says_what_to_add(job: StaticJob) -> None:
    def work(comm: Communicator) -> None:
        with pytest.raises(UnsupportedDType, match=r"no rail can sum float64.*add a tcp or rdma rail"):
            comm.all_reduce(np.zeros(3))
        np.testing.assert_array_equal(comm.all_reduce(np.ones(3, np.float32)), RANKS)
        job.meet()

    job.run(work, "ina=ina@lo")


def test_the_switch_s_mismatch_becomes_both_descriptions_on_all_ranks(job: StaticJob) -> None:
    def work(comm: Communicator) -> str:
        x = np.zeros(100, np.float32)
        comm.all_reduce(x)
        job.meet()
        with pytest.raises(CollectiveMismatch) as raised:
            comm.all_reduce(x, op="max" if comm.rank == 1 else "sum")
        return str(raised.value)

    for message in job.run(work, "ina=ina@lo"):
        assert "all_reduce #1 of 100 float32, sum" in message
        assert "all_reduce #1 of 100 float32, max" in message


def test_a_rank_that_leaves_is_named_though_the_switch_knows_nothing_of_it(job: StaticJob) -> None:
    def work(comm: Communicator) -> None:
        job.meet()
        if comm.rank == 2:
            return
        with pytest.raises(PeerLost) as raised:
            comm.all_reduce(np.zeros(100, np.float32))
        assert raised.value.rank == 2

    job.run(work, "ina=ina@lo")
