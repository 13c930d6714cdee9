# SPDX-License-Identifier: Apache-2.0
"""Rails that fail and come back during calls: no number is wrong, and no rank hangs."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import numpy as np
import pytest
from protocol.jobs import StaticJob
from system.lone_rank import LoneRank, sum_until
from system.namespaces import inside
from system.plane_network import PlaneNetwork, plane_network
from system.steady_calls import DEADLINE_S, LARGE, steady_calls

from railweave.hosts.communicator import Communicator
from railweave.hosts.errors import PeerLost, RailDown, RailweaveError
from railweave.topologies.lab import faults
from railweave.topologies.lab.faults import Fault
from railweave.topologies.model import Plane

RAILS = ("tcp", "rdma")
EQUAL = {"tcp": 1, "rdma": 1}
HARMED = "h2"  # rank 1
OUT = ("down", "recovering")
RANKS, LONE = 3, 1
LATE_S = 1.0
INTERRUPT_S = 0.5

FAULTS: dict[str, Callable[[Plane], Fault]] = {
    "host link down": lambda plane: faults.host_down(plane, HARMED),
    "switch port down": lambda plane: faults.port_down(plane, HARMED),
    "loss to the switch": lambda plane: faults.lossy(plane, HARMED, to_host=False),
    "loss to the host": lambda plane: faults.lossy(plane, HARMED, to_switch=False),
    "loss both ways": lambda plane: faults.lossy(plane, HARMED),
    "switch killed": faults.switch_killed,
    "switch frozen": faults.switch_frozen,
}
OF_RDMA = ("host link down", "loss to the host", "switch killed")  # other faults differ for TCP alone


@pytest.fixture(scope="module")
def network() -> Iterator[PlaneNetwork]:
    with plane_network(RANKS, RAILS) as made:
        yield made


@pytest.mark.parametrize(
    ("rail", "fault"), [*(("tcp", fault) for fault in FAULTS), *(("rdma", fault) for fault in OF_RDMA)]
)
def test_a_rail_fails_in_the_middle_of_calls_and_comes_back(
    network: PlaneNetwork, rail: str, fault: str
) -> None:
    harm = FAULTS[fault](network.plane(rail))
    with network.ready_for(harm), steady_calls(network, shares=EQUAL) as calls:
        calls.rounds(2)
        network.do(harm.inject)
        calls.all_see(rail, OUT)
        calls.rounds(2)
        network.do(harm.repair)
        calls.all_see(rail, ("up",))
        calls.used_again(rail)
    for at in calls.rails.values():
        assert at[rail].failures >= 1
        assert at[rail].down_s > 0


def test_several_communicators_of_a_process_lose_the_same_rail(network: PlaneNetwork) -> None:
    harm = faults.port_down(network.plane("rdma"), HARMED)
    with (
        network.ready_for(harm),
        steady_calls(network, shares=EQUAL) as first,
        steady_calls(network, shares=EQUAL, job="second") as second,
    ):
        for calls in (first, second):
            calls.rounds(2)
        network.do(harm.inject)
        for calls in (first, second):
            calls.all_see("rdma", OUT)
        network.do(harm.repair)
        for calls in (first, second):
            calls.all_see("rdma", ("up",))
            calls.used_again("rdma")


@contextmanager
def lone_rank(network: PlaneNetwork, **options: object) -> Iterator[tuple[StaticJob, LoneRank]]:
    """Start a job in which rank 1 is a separate process."""
    job = StaticJob(RANKS)
    lone = LoneRank(network, job, LONE, shares=EQUAL, **options)
    try:
        yield job, lone
    finally:
        lone.close()


def test_a_rank_that_is_late_changes_no_rails(network: PlaneNetwork) -> None:
    """First the process of rank 1 is stopped, for longer than a rail may be silent. Then rank 2 computes."""
    with lone_rank(network) as (job, lone):
        rounds = 0

        def enough(comm: Communicator) -> bool:
            nonlocal rounds
            if comm.rank == 0:
                rounds += 1
            elif rounds == 6:
                compute()
            if comm.rank == 0 and rounds == 3:
                lone.signal(signal.SIGSTOP)
                threading.Timer(LATE_S, lone.signal, [signal.SIGCONT]).start()
            return rounds > 8

        def work(comm: Communicator) -> None:
            sum_until(comm, lambda: enough(comm))
            assert not any(state.failures for state in comm._agent.rail_states())

        with network.ranks(work, job, but=LONE, shares=EQUAL) as futures:
            for future in futures:
                future.result(DEADLINE_S)


def compute() -> None:
    """Keep Python's global interpreter lock busy."""
    end = time.monotonic() + LATE_S
    while time.monotonic() < end:
        sum(range(1000))


def test_a_rank_that_is_killed_is_named_by_all_others(network: PlaneNetwork) -> None:
    """The ranks neither wait for a silence to end nor ask a controller."""
    with lone_rank(network, peer_timeout_s=0) as (job, lone):

        def work(comm: Communicator) -> None:
            calls = 0

            def enough() -> bool:
                nonlocal calls
                calls += 1
                if (comm.rank, calls) == (0, 3):
                    lone.signal(signal.SIGKILL)
                return False

            with pytest.raises(PeerLost) as raised:
                sum_until(comm, enough)
            assert raised.value.rank == LONE

        with network.ranks(work, job, but=LONE, shares=EQUAL, peer_timeout_s=0) as futures:
            for future in futures:
                future.result(DEADLINE_S)


def call_for_ever(comm: Communicator) -> None:
    while True:
        comm.all_reduce(np.ones(LARGE, np.int32))


def test_without_a_rail_that_joins_all_the_error_says_what_is_wrong(network: PlaneNetwork) -> None:
    """Each rail has lost another rank. Each rank reports its own fault, or the fault that a peer reported."""
    harms = [
        faults.port_down(network.plane(rail), host) for rail, host in zip(RAILS, ("h2", "h3"), strict=True)
    ]
    started = threading.Barrier(RANKS)

    def work(comm: Communicator) -> None:
        comm.all_reduce(np.ones(LARGE, np.int32))
        started.wait(DEADLINE_S)
        if comm.rank == 0:
            for harm in harms:
                network.do(harm.inject)
        started.wait(DEADLINE_S)
        with pytest.raises(RailDown, match=r"(h2-tcp|h3-rdma) has no carrier.*; rank \d has waited 1 s"):
            call_for_ever(comm)

    with ExitStack() as stack:
        for harm in harms:
            stack.enter_context(network.ready_for(harm))
        network.run(work, shares=EQUAL, timeout_s=1, peer_timeout_s=0)


def test_an_interrupt_ends_a_wait_for_rails(network: PlaneNetwork) -> None:
    """Rank 0 runs in the main thread, because Python handles signals there."""
    harms = [faults.port_down(network.plane(rail), HARMED) for rail in RAILS]
    job = StaticJob(RANKS)
    injected, interrupted, met = threading.Event(), threading.Event(), threading.Barrier(RANKS)

    def work(comm: Communicator) -> None:
        comm.all_reduce(np.ones(LARGE, np.int32))
        met.wait(DEADLINE_S)
        assert injected.wait(DEADLINE_S)
        with pytest.raises(RailweaveError):
            call_for_ever(comm)
        assert interrupted.wait(DEADLINE_S)

    with ExitStack() as stack:
        for harm in harms:
            stack.enter_context(network.ready_for(harm))
        futures = stack.enter_context(network.ranks(work, job, but=0, shares=EQUAL, timeout_s=3))
        stack.enter_context(inside(network.at(0)))
        comm = stack.enter_context(job.communicator(0, network.rails(0), shares=EQUAL))
        comm.all_reduce(np.ones(LARGE, np.int32))
        met.wait(DEADLINE_S)
        for harm in harms:
            network.do(harm.inject)
        injected.set()
        timer = threading.Timer(INTERRUPT_S, signal.raise_signal, [signal.SIGINT])
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            call_for_ever(comm)
        interrupted.set()
        timer.join()
        comm.close()
        for future in futures:
            future.result(DEADLINE_S)


@pytest.mark.parametrize(
    ("rail", "fault"), [("tcp", "switch port down"), ("tcp", "loss both ways"), ("rdma", "host link down")]
)
def test_a_rail_that_is_down_when_a_job_begins_is_used_when_it_is_there(
    network: PlaneNetwork, rail: str, fault: str
) -> None:
    harm = FAULTS[fault](network.plane(rail))
    with network.ready_for(harm):
        network.do(harm.inject)
        with steady_calls(network, shares=EQUAL) as calls:
            calls.rounds(2)
            calls.all_see(rail, OUT)
            network.do(harm.repair)
            calls.all_see(rail, ("up",))
            calls.used_again(rail)
