# SPDX-License-Identifier: Apache-2.0
"""Ranks learn to stripe over virtual rails. StripedJob compares the plans of all ranks."""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate, groupby

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from protocol.striping_job import (
    COMPARING,
    LARGE,
    SMALL,
    SMALL_BYTES,
    WITHIN,
    assert_split,
    calls,
    ideal_shares,
    link_rails,
    tcp,
)

from railweave._native.collectives import Called, Collective, DType, ReduceOp
from railweave.experiments.striping.virtual import StripedJob, VirtualRail
from railweave.hosts.capabilities import SHARDED
from railweave.hosts.errors import InvalidOption, RailDown
from railweave.hosts.prediction import predict, shares
from railweave.hosts.sequence import in_pieces
from railweave.hosts.striping import CallKey
from railweave.hosts.striping.planner import RailState

RAILS = {
    "100 and 30": [tcp(8e6), tcp(2.4e6)],
    "ina+tcp+rdma": [VirtualRail(0.0003, 12e6, "ina"), tcp(), VirtualRail(0.0005, 7e6, "rdma")],
    "five": [tcp(2e6), tcp(4e6), tcp(8e6), tcp(3e6), tcp(8e6)],
}


def all_reduce(count: int) -> CallKey:
    return Collective.ALL_REDUCE, DType.FLOAT32, ReduceOp.SUM, 0, Called.AS_CARRIED, count


@pytest.mark.parametrize("rails", RAILS.values(), ids=RAILS.keys())
@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_a_split_is_found_within_twenty_collectives(rails: list[VirtualRail], noise: float) -> None:
    job = StripedJob([VirtualRail(**vars(rail)) for rail in rails], noise=noise, lateness_s=0.002)
    calls(job, WITHIN)
    usual = [taken for taken in calls(job, 40) if not taken.plan.tried]
    for taken in usual:
        assert_split(taken, rails, within=0.05 + noise / 2)
    ideal_s = max(
        rails[rail].time_s(LARGE * 4 * share, True) for rail, share in ideal_shares(rails, LARGE * 4).items()
    )
    assert sorted(taken.time_s for taken in usual)[len(usual) // 2] <= ideal_s * (1.02 + noise / 2)


def best_s(rails: Sequence[VirtualRail], size: int) -> float:
    """Return the time of the fastest rail or of the best split, if this is shorter."""
    shares = ideal_shares(rails, size)
    split_s = max(rails[rail].time_s(int(size * share), False) for rail, share in shares.items())
    return min(split_s, *(rail.time_s(size, False) for rail in rails))


@pytest.mark.parametrize("count", [1 << 15, 1 << 18, 1 << 22])
def test_calls_of_a_new_class_are_split_from_the_first_one_on(count: int) -> None:
    rails = link_rails(50_000_000, 4)
    job = StripedJob(rails, rate_bps=50_000_000, noise=0.05, lateness_s=0.002)
    for number, taken in enumerate(calls(job, 3 * WITHIN, count)):
        assert len(taken.plan.parts) == 3
        assert taken.time_s <= 1.25 * best_s(rails, count * 4)
        if number < 3:  # a long part of the call must not be suspected when other rails are done
            assert 0.9 * taken.time_s <= taken.plan.expected_s <= 4 * taken.time_s


def test_no_large_call_of_a_mixed_workload_is_slow_to_learn_something() -> None:
    """Mix collectives of all sizes. A new class starts from the costs that other classes have measured."""
    job = StripedJob(link_rails(50_000_000, 4), rate_bps=50_000_000, noise=0.1, lateness_s=0.003)
    rng = random.Random(77)
    for _ in range(500):
        collective = rng.choice([Collective.ALL_REDUCE, Collective.ALL_GATHER, Collective.BROADCAST])
        shards = job.ranks if collective in SHARDED else 1
        count = int(2 ** rng.uniform(0, 22)) // shards + 1
        for rail, real in zip(job.rails, link_rails(50_000_000, 4, collective), strict=True):
            rail.rate = real.rate
        taken = job.call(count, rng.choice([DType.FLOAT32, DType.INT32]), collective=collective)
        size = count * shards * 4
        if size > SMALL_BYTES:
            assert taken.time_s <= 1.5 * best_s(job.rails, size), (size, taken)


def test_rails_of_unknown_rates_start_even() -> None:
    job = StripedJob([tcp(), tcp(2e6)], rate_bps=0)
    assert calls(job, 1)[0].shares() == {0: 0.5, 1: 0.5}
    calls(job, WITHIN)
    assert_split(calls(job, 1)[0], job.rails)


ALL, FIRST = [True, True], [True, False]
CHANGES: dict[str, list[int | list[bool] | tuple[int, float]]] = {
    "the first rail becomes slower": [50, (0, 0.5), WITHIN],
    "a rail becomes much slower": [50, (1, 0.1), WITHIN],
    "a rail becomes faster": [50, (1, 2.0), WITHIN],
    "both rails become slower": [40, (0, 0.5), (1, 0.5), WITHIN],
    "a rail comes back": [30, FIRST, 5, ALL],
    "a rail comes back slower": [30, FIRST, 3, (1, 0.25), ALL, 8],
    "a rail that was never measured comes back": [FIRST, 10, ALL, WITHIN],
    "all rails are slow in the call during which one dies": [30, (0, 0.01), 1, (0, 100.0), FIRST, ALL],
}


@pytest.mark.parametrize("changes", CHANGES.values(), ids=CHANGES.keys())
def test_the_split_follows_the_rails(changes: list[int | list[bool] | tuple[int, float]]) -> None:
    """Each change is a number of calls, the rails that are alive, or a rail's rate times a factor."""
    rails = [tcp(), tcp(6e6)]
    job = StripedJob(rails, noise=0.05)
    for change in changes:
        match change:
            case int():
                calls(job, change)
            case (int() as rail, float() as factor):
                rails[rail].rate *= factor
            case list():
                job.change(change)
    for taken in calls(job, 10):
        if not taken.plan.tried:
            assert_split(taken, rails, within=0.08)


def test_rails_that_disturb_each_other_are_split_only_when_they_stop_it() -> None:
    rails = [VirtualRail(0.0005, 8e6, crowded=2.2), VirtualRail(0.0005, 8e6, crowded=2.2)]
    job = StripedJob(rails, noise=0.05)
    calls(job, 30)
    later = calls(job, 200)
    alone_s = rails[0].time_s(LARGE * 4, False)
    assert sorted(taken.time_s for taken in later)[100] <= alone_s * 1.001
    assert sum(taken.time_s for taken in later) <= 200 * alone_s * 1.03
    for rail in rails:
        rail.crowded = 1.0
    calls(job, 150)
    assert_split(calls(job, 1)[0], rails, within=0.08)


def test_other_threads_may_ask_while_calls_are_planned() -> None:
    """Prometheus' thread asks for predictions, for example, while calls of new sizes change them."""
    job = StripedJob([tcp(), tcp(), tcp()])
    planner, ended = job.planners[0], threading.Event()

    def ask() -> int:
        asked = 0
        while not ended.is_set():
            shares(planner)
            predict(planner, LARGE)
            asked += 1
        return asked

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(1) as pool:
            asking = pool.submit(ask)
            try:
                for count in range(1, 200):
                    job.call(count * 997)
                job.change([True, False, True])
                calls(job, 20)
            finally:
                ended.set()
            assert asking.result(60) > 0
    finally:
        sys.setswitchinterval(interval)


def test_plans_of_equal_calls_are_the_same_objects_until_something_is_learnt_or_changes() -> None:
    job = StripedJob([tcp(), tcp()])
    calls(job, COMPARING, SMALL)
    plans = {id(taken.plan) for taken in calls(job, 60, SMALL) if not taken.plan.survey_after}
    assert len(plans) <= 2
    planner, call = job.planners[0], all_reduce(SMALL)
    assert planner.ahead(job.op_index, call, job.changes)[1] > 0
    job.change([True, False])  # no plan tells the planner of this change
    assert planner.ahead(job.op_index, call, job.changes)[1] == 0


def test_sharded_collectives_have_costs_of_their_own() -> None:
    rails = [tcp(), tcp(4e6)]
    job = StripedJob(rails)
    for _ in range(30):
        taken = job.call(LARGE, collective=Collective.ALL_GATHER)
    assert_split(taken, rails)
    keys = {key for key, _, _ in job.planners[0].table.known}
    assert [(key.collective, key.size_class) for key in keys] == [("all_gather", 4 * LARGE * 4)]


def test_a_type_that_only_some_rails_carry_is_split_over_these_and_says_nothing_of_the_others() -> None:
    job = StripedJob([VirtualRail(0.0003, 12e6, "ina"), tcp(), tcp()])
    job.call(LARGE)
    for _ in range(30):
        taken = job.call(LARGE // 2, DType.FLOAT64)  # of the same size class, on fewer rails
    assert set(taken.shares()) == {1, 2}
    *_, taken = calls(job, WITHIN)
    assert set(taken.shares()) == {0, 1, 2}


def test_no_rail_is_left_for_a_type() -> None:
    job = StripedJob([VirtualRail(0.0003, 12e6, "ina"), tcp()])
    job.change([True, False])
    with pytest.raises(
        RailDown, match=r"r1.*its cable is out.*no other rail can carry all_reduce sum of int64"
    ):
        job.call(LARGE, DType.INT64)
    assert job.call(LARGE).shares() == {0: 1.0}


@pytest.mark.parametrize("options", [{"fixed": True}, {"deterministic": True}], ids=str)
def test_a_given_split_never_changes_and_nothing_is_asked(options: dict[str, bool]) -> None:
    rails = [tcp(), tcp(1e6)]
    planners = [StripedJob(rails).planner(**options) for _ in range(4)]
    job = StripedJob(rails, planners=planners, noise=0.3)
    parts = {taken.plan.parts for taken in calls(job, 50)}
    assert parts == {((0, 0, LARGE // 2), (1, LARGE // 2, LARGE // 2))}
    assert job.surveys == 0
    job.change([False, True])
    assert calls(job, 1)[0].shares() == {1: 1.0}


def test_ranks_that_would_plan_differently_are_told() -> None:
    rails = [tcp(), tcp()]
    job = StripedJob(rails)
    planners = [job.planner(), job.planner(), job.planner(), StripedJob([*rails, tcp()]).planner()]
    with pytest.raises(InvalidOption, match="the ranks plan differently"):
        calls(StripedJob(rails, planners=planners), 1)


@pytest.mark.parametrize(
    ("count", "times", "states"),
    [(LARGE, 40, ["cold", "warm", "hot"]), (SMALL, COMPARING, ["cold", "comparing", "hot"])],
)
def test_states_of_a_class_from_cold_to_hot(count: int, times: int, states: list[str]) -> None:
    """Only short calls are compared in blocks."""
    job = StripedJob([tcp(), tcp()])
    seen = []
    for _ in range(times):
        job.call(count)
        seen.append(predict(job.planners[0], count * 4).state)
    assert [state for state, _ in groupby(seen)] == states


# ------------------------------------------------------------ rails that die


def test_a_rail_that_dies_gets_nothing_until_it_is_back_and_is_then_measured() -> None:
    job = StripedJob([tcp(8e6), tcp(2.4e6)])
    calls(job, 30)
    job.change([True, False])
    assert all(taken.shares() == {0: 1.0} for taken in calls(job, 5))
    planner = job.planners[0]
    assert planner.rail_states[1] is RailState.DOWN
    job.change([True, True])
    calls(job, 1)
    assert planner.rail_states[1] is RailState.RECOVERING
    calls(job, 8)
    assert planner.rail_states[1] is RailState.UP


def test_long_parts_are_cut_while_a_rail_is_out_and_measured_whole() -> None:
    rails = [tcp(1e6), tcp(3e6), tcp()]
    job = StripedJob(rails, rate_bps=100_000_000)
    job.change([True, True, False])
    calls(job, WITHIN, 1 << 20)
    *_, taken = calls(job, 3, 1 << 20)
    assert_split(taken, rails[:2], 1 << 20)
    assert taken.plan.expected_s == pytest.approx(taken.time_s, rel=0.1)
    assert job.planners[0].reasons
    pieces = in_pieces(taken.plan)
    assert [rail for rail, _, _ in pieces] == [0] * 10 + [1] * 10  # of about 0.1 s each
    assert [first for _, first, _ in pieces] == list(
        accumulate((count for _, _, count in pieces[:-1]), initial=0)
    )
    assert sum(count for _, _, count in pieces) == 1 << 20
    short = calls(job, 1, 1 << 10)[0].plan
    assert in_pieces(short) == list(short.parts)
    job.change([True, True, True])
    calls(job, 1, 1 << 20)
    assert not job.planners[0].reasons  # calls are cut into pieces only while there are reasons


@given(
    st.lists(
        st.tuples(
            st.integers(0, 9),
            st.lists(st.booleans(), min_size=3, max_size=3),
            st.sets(st.integers(0, 3)),
            st.sampled_from([SMALL, 3000, 100_000, LARGE]),
        ),
        min_size=1,
        max_size=8,
    ),
    st.integers(0, 99),
)
@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
def test_ranks_that_lead_plan_as_the_late_ones_and_dead_rails_carry_nothing(
    schedule: list[tuple[int, list[bool], set[int], int]], seed: int
) -> None:
    rails = [tcp(), tcp(5e6), VirtualRail(0.0003, 12e6, "ina")]
    job = StripedJob(rails, noise=0.3, lateness_s=0.003, seed=seed)
    for times, wanted, leading, count in schedule:
        calls(job, times + 20, count)
        rails[times % 3].rate *= 1.3 if times % 2 else 0.8
        alive = wanted if any(wanted) else [True] * 3
        job.change(alive, sorted(leading), count)
        for taken in calls(job, 3 + times, count):
            assert all(alive[rail] for rail in taken.shares())
