# SPDX-License-Identifier: Apache-2.0
"""Rails die, come back and change. The tests compare the plans of all ranks."""

from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from protocol.striping_job import LARGE, SMALL, WITHIN, assert_split, calls, tcp

from railweave.experiments.striping.virtual import StripedJob, VirtualRail
from railweave.hosts.sequence import in_pieces
from railweave.hosts.striping.planner import RailState


def test_a_rail_that_dies_gets_nothing_and_comes_back_with_its_old_costs() -> None:
    rails = [tcp(8e6), tcp(2.4e6)]
    job = StripedJob(rails)
    calls(job, 30)
    job.change([True, False])
    dead = calls(job, 5)
    assert all(taken.shares() == {0: 1.0} for taken in dead)
    planner = job.planners[0]
    assert planner.rail_states[1] is RailState.DOWN
    job.change([True, True])
    back = calls(job, 1)[0]
    assert planner.rail_states[1] is RailState.RECOVERING
    assert_split(back, rails)
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


def test_a_rail_that_comes_back_slower_is_measured_at_once() -> None:
    rails = [tcp(), tcp()]
    job = StripedJob(rails)
    calls(job, 30)
    job.change([True, False])
    calls(job, 3)
    rails[1].rate *= 0.25
    job.change([True, True])
    calls(job, 8)
    assert_split(calls(job, 1)[0], rails)


def test_a_rail_that_was_never_measured_is_tried_when_it_comes_back() -> None:
    rails = [tcp(), tcp()]
    job = StripedJob(rails)
    job.change([True, False])
    calls(job, 10)
    job.change([True, True])
    calls(job, WITHIN)
    assert_split(calls(job, 1)[0], rails)


@given(st.lists(st.tuples(st.integers(0, 6), st.lists(st.booleans(), min_size=3, max_size=3)), max_size=12))
@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
def test_flapping_rails_never_carry_while_they_are_down(schedule: list[tuple[int, list[bool]]]) -> None:
    rails = [tcp(), tcp(5e6), VirtualRail(0.0003, 12e6, "ina")]
    job = StripedJob(rails, ranks=2)
    alive = [True] * 3
    for times, wanted in schedule:
        alive = wanted if any(wanted) else [True] * 3
        job.change(alive)
        for taken in calls(job, times) + calls(job, times, SMALL):
            assert all(alive[rail] for rail, _, _ in taken.plan.parts)
    for taken in calls(job, 30)[-5:]:
        assert_split(taken, [rail for rail in rails if alive[rails.index(rail)]]) if all(alive) else None


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
@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
def test_ranks_that_lead_plan_as_the_late_ones(
    schedule: list[tuple[int, list[bool], set[int], int]], seed: int
) -> None:
    rails = [tcp(), tcp(5e6), VirtualRail(0.0003, 12e6, "ina")]
    job = StripedJob(rails, noise=0.3, lateness_s=0.003, seed=seed)
    for times, wanted, leading, count in schedule:
        calls(job, times + 30, count)
        rails[times % 3].rate *= 1.3 if times % 2 else 0.8
        job.change(wanted if any(wanted) else [True] * 3, sorted(leading), count)
        calls(job, 3, count)


def test_measurements_from_before_a_change_are_not_believed() -> None:
    rails = [tcp(), tcp()]
    job = StripedJob(rails)
    calls(job, 30)
    rails[0].rate /= 100  # a call during which a rail dies takes long on all of them
    calls(job, 1)
    rails[0].rate *= 100
    job.change([True, False])
    job.change([True, True])
    for taken in calls(job, 10):
        assert_split(taken, rails)
