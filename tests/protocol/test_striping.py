# SPDX-License-Identifier: Apache-2.0
"""Ranks learn to stripe over virtual rails. StripedJob compares the plans of all ranks."""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
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
from railweave.hosts.errors import InvalidOption, RailDown, UnsupportedDType
from railweave.hosts.prediction import predict, shares
from railweave.hosts.striping import CallKey

RAILS = {
    "tcp+tcp": [tcp(), tcp()],
    "100 and 30": [tcp(8e6), tcp(2.4e6)],
    "ina+tcp": [VirtualRail(0.0003, 12e6, "ina"), tcp()],
    "three": [tcp(), tcp(7e6), tcp(9e6)],
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
    for taken in calls(job, 3 * WITHIN, count):
        assert len(taken.plan.parts) == 3
        assert taken.time_s <= 1.25 * best_s(rails, count * 4)


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


def test_a_call_is_expected_to_take_its_time_before_anything_is_measured() -> None:
    """A rail that carries most of a call must not be suspected when the others have finished small parts."""
    job = StripedJob(link_rails(50_000_000, 4), rate_bps=50_000_000, noise=0.05, lateness_s=0.002)
    for taken in calls(job, 3, 1 << 16) + calls(job, 3, 1 << 22) + calls(job, 3, 1 << 18):
        assert 0.9 * taken.time_s <= taken.plan.expected_s <= 4 * taken.time_s


def test_rails_of_unknown_rates_start_even() -> None:
    job = StripedJob([tcp(), tcp(2e6)], rate_bps=0)
    assert calls(job, 1)[0].shares() == {0: 0.5, 1: 0.5}
    calls(job, WITHIN)
    assert_split(calls(job, 1)[0], job.rails)


@pytest.mark.parametrize("factor", [0.5, 2.0, 0.1])
@pytest.mark.parametrize("which", [0, 1])
def test_a_rail_that_changes_its_rate_is_followed(factor: float, which: int) -> None:
    rails = [tcp(), tcp(6e6)]
    job = StripedJob(rails, noise=0.05)
    calls(job, 50)
    rails[which].rate *= factor
    calls(job, WITHIN)
    for taken in calls(job, 40):
        if not taken.plan.tried:
            assert_split(taken, rails, within=0.08)


def test_both_rails_at_half_their_rate_are_still_split() -> None:
    rails = [tcp(), tcp()]
    job = StripedJob(rails)
    calls(job, 40)
    for rail in rails:
        rail.rate *= 0.5
    calls(job, WITHIN)
    assert_split(calls(job, 1)[0], rails)


def test_rails_that_disturb_each_other_are_not_split_for_long() -> None:
    rails = [VirtualRail(0.0005, 8e6, crowded=2.2), VirtualRail(0.0005, 8e6, crowded=2.2)]
    job = StripedJob(rails, noise=0.05)
    calls(job, 30)
    later = calls(job, 200)
    alone_s = rails[0].time_s(LARGE * 4, False)
    assert sorted(taken.time_s for taken in later)[100] <= alone_s * 1.001
    assert sum(taken.time_s for taken in later) <= 200 * alone_s * 1.03


def test_rails_that_stop_disturbing_each_other_are_split_in_the_end() -> None:
    rails = [VirtualRail(0.0005, 8e6, crowded=2.2), VirtualRail(0.0005, 8e6, crowded=2.2)]
    job = StripedJob(rails)
    calls(job, 60)
    for rail in rails:
        rail.crowded = 1.0
    calls(job, 150)
    assert_split(calls(job, 1)[0], rails)


def threshold(hosts: int) -> int:
    """Return the least size in bytes from which ina and tcp share an allreduce."""
    tcp_rail = VirtualRail(2 * (hosts - 1) * 0.0002, 12e6 * hosts / (2 * (hosts - 1)))
    job = StripedJob([VirtualRail(0.0004, 11.8e6, "ina"), tcp_rail], ranks=hosts)
    for exponent in range(10, 23):
        calls(job, WITHIN, (1 << exponent) // 4)
    for exponent in range(10, 23):
        (taken,) = calls(job, 1, (1 << exponent) // 4)
        if len(taken.plan.parts) > 1:
            return 1 << exponent
    return 1 << 30


def test_the_threshold_of_ina_and_tcp_grows_with_the_hosts() -> None:
    found = [threshold(hosts) for hosts in (2, 4, 6)]
    assert found[0] < found[1] < found[2]
    assert found[0] >= 2048


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
                for count in range(1, 400):
                    job.call(count * 997)
                job.change([True, False, True])
                calls(job, 20)
            finally:
                ended.set()
            assert asking.result(60) > 0
    finally:
        sys.setswitchinterval(interval)


def test_a_call_that_was_not_submitted_is_planned_again_alike() -> None:
    one, two = StripedJob([tcp(), tcp()]), StripedJob([tcp(), tcp()])
    for _ in range(40):
        two._await()
        for planner in two.planners:  # the call is planned but not submitted, because the rank is frozen
            planner.plan(two.op_index, all_reduce(LARGE), [])
        assert one.call(LARGE).plan.parts == two.call(LARGE).plan.parts
    assert one.surveys == two.surveys


def test_nothing_is_repeated_across_a_change_that_came_behind_the_plan() -> None:
    job = StripedJob([tcp(), tcp()])
    calls(job, COMPARING, SMALL)
    planner = job.planners[0]
    call = all_reduce(SMALL)
    assert planner.ahead(job.op_index, call, job.changes)[1] > 0
    job.change([True, False])  # no plan tells the planner of this change
    assert planner.ahead(job.op_index, call, job.changes)[1] == 0


def test_plans_of_equal_calls_are_the_same_object_between_measurements() -> None:
    job = StripedJob([tcp(), tcp()])
    calls(job, COMPARING, SMALL)
    plans = {id(taken.plan) for taken in calls(job, 60, SMALL) if not taken.plan.survey_after}
    assert len(plans) <= 2


def test_sharded_collectives_have_costs_of_their_own() -> None:
    rails = [tcp(), tcp(4e6)]
    job = StripedJob(rails)
    for _ in range(30):
        taken = job.call(LARGE, collective=Collective.ALL_GATHER)
    assert_split(taken, rails)
    keys = {key for key, _, _ in job.planners[0].table.known}
    assert [(key.collective, key.size_class) for key in keys] == [("all_gather", 4 * LARGE * 4)]


def test_a_type_that_only_some_rails_carry_is_split_over_these() -> None:
    job = StripedJob([VirtualRail(0.0003, 12e6, "ina"), tcp(), tcp()])
    for _ in range(30):
        taken = job.call(LARGE, DType.FLOAT64)
    assert set(taken.shares()) == {1, 2}
    only_ina = StripedJob([VirtualRail(0.0003, 12e6, "ina"), VirtualRail(0.0003, 12e6, "ina")])
    with pytest.raises(UnsupportedDType, match=r"no rail can carry all_reduce sum of float64.*add a tcp"):
        only_ina.call(LARGE, DType.FLOAT64)


def test_classes_over_different_rails_learn_from_each_other() -> None:
    job = StripedJob([VirtualRail(0.0003, 12e6, "ina"), tcp(), tcp()])
    job.call(LARGE)
    for _ in range(20):  # calls of the same class, but of a type that the first rail lacks
        job.call(LARGE // 2, DType.FLOAT64)
    for _ in range(WITHIN):
        taken = job.call(LARGE)
    assert set(taken.shares()) == {0, 1, 2}


def test_no_rail_is_left_for_a_type() -> None:
    job = StripedJob([VirtualRail(0.0003, 12e6, "ina"), tcp()])
    job.change([True, False])
    with pytest.raises(
        RailDown, match=r"r1.*its cable is out.*no other rail can carry all_reduce sum of int64"
    ):
        job.call(LARGE, DType.INT64)
    assert job.call(LARGE).shares() == {0: 1.0}


def test_fixed_shares_hold_and_nothing_is_asked() -> None:
    rails = [tcp(), tcp(1e6)]
    planners = [StripedJob(rails).planner(fixed=True) for _ in range(4)]
    job = StripedJob(rails, planners=planners)
    assert {taken.plan.parts for taken in calls(job, 20)} == {
        ((0, 0, LARGE // 2), (1, LARGE // 2, LARGE // 2))
    }
    assert job.surveys == 0
    job.change([False, True])
    assert calls(job, 1)[0].shares() == {1: 1.0}


def test_a_deterministic_split_never_changes() -> None:
    rails = [tcp(), tcp(1e6)]
    planners = [StripedJob(rails).planner(deterministic=True) for _ in range(4)]
    job = StripedJob(rails, planners=planners, noise=0.3)
    parts = {taken.plan.parts for taken in calls(job, 50)}
    assert len(parts) == 1
    assert job.surveys == 0
    job.change([True, False])
    assert calls(job, 1)[0].shares() == {0: 1.0}


def test_ranks_that_would_plan_differently_are_told() -> None:
    rails = [tcp(), tcp()]
    job = StripedJob(rails)
    planners = [job.planner(), job.planner(), job.planner(), StripedJob([*rails, tcp()]).planner()]
    with pytest.raises(InvalidOption, match="the ranks plan differently"):
        calls(StripedJob(rails, planners=planners), 1)


def test_states_of_a_class_from_cold_to_hot() -> None:
    job = StripedJob([tcp(), tcp()])
    seen = []
    for _ in range(40):
        job.call(LARGE)
        (each,) = job.planners[0]._classes.values()
        if not seen or seen[-1] != each.stage:
            seen.append(each.stage)
    assert seen == ["cold", "warm", "hot"]
    assert predict(job.planners[0], LARGE * 4).state == "hot"  # large calls are not compared in blocks
