# SPDX-License-Identifier: Apache-2.0
"""Short calls over virtual rails: the choice that ranks find to be fastest, and the cost of the search."""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import pairwise

import pytest
from protocol.striping_job import COMPARING, LARGE, SMALL, WITHIN, assert_split, calls, tcp, usual_calls

from railweave.experiments.striping.virtual import StripedJob, VirtualRail
from railweave.hosts.prediction import predict


def loses(
    rails: list[VirtualRail],
    sizes: list[int],
    lateness_s: float = 0.0,
    noise: float = 0.0,
    seed: int = 0,
    rate_bps: int = 100_000_000,
) -> bool:
    """Return whether calls take longer than on the best rail alone, on links of `rate_bps`."""
    job = StripedJob(rails, ranks=3, rate_bps=rate_bps, noise=noise, lateness_s=lateness_s, seed=seed)
    for _ in range(2 * WITHIN):
        for count in sizes:
            job.call(count)
    for count in sizes:
        quickest_s = min(rail.time_s(count * 4, False) for rail in rails)
        times = sorted(taken.time_s for taken in usual_calls(job, 9, count))
        # Calls also wait for the last rank, so the allowed loss is relative to both times.
        if times[4] > (quickest_s + lateness_s) * (1.06 + 2 * noise) - lateness_s:
            return True
    return False


@dataclass
class Draw:
    """Rails and calls that are drawn from a seed. No rail is faster than its link."""

    seed: int
    rails: list[VirtualRail]
    noise: float
    lateness_s: float
    sizes: list[int]

    @classmethod
    def of(cls, seed: int) -> Draw:
        draw = random.Random(seed)
        rails = [
            VirtualRail(10 ** draw.uniform(-5, -2.3), 10 ** draw.uniform(6, 8))
            for _ in range(draw.randint(2, 4))
        ]
        noise, lateness_s = (draw.choice([0.0, draw.uniform(0, most)]) for most in (0.1, 0.01))
        return cls(
            seed,
            rails,
            noise,
            lateness_s,
            sizes=[int(2 ** draw.uniform(0, 21)) for _ in range(draw.randint(1, 3))],
        )

    @property
    def rate_bps(self) -> int:
        # A ring of three ranks sends 4/3 of the bytes, plus headers.
        return int(12 * max(rail.rate for rail in self.rails))


def test_whatever_the_rails_the_ranks_agree_and_do_not_lose_against_the_best() -> None:
    """Of a thousand such draws, six lose. Of these hundred draws, one loses."""
    draws = [Draw.of(seed) for seed in range(100)]
    losing = {
        draw.seed
        for draw in draws
        if loses(draw.rails, draw.sizes, draw.lateness_s, draw.noise, draw.seed, draw.rate_bps)
    }
    assert losing <= {65}


@pytest.mark.parametrize("seed", [264, 564, 736, 866])
def test_a_slow_rail_is_tried_by_a_call_before_a_block(seed: int) -> None:
    """Another class may predict a tenth of the slow rail's time, and blocks of calls are long."""
    draw = Draw.of(seed)
    job = StripedJob(
        draw.rails, ranks=3, rate_bps=draw.rate_bps, noise=draw.noise, lateness_s=draw.lateness_s, seed=seed
    )
    times_s = [[job.call(count).time_s for count in draw.sizes] for _ in range(2 * WITHIN + 300)]
    for count, taken_s in zip(draw.sizes, zip(*times_s[2 * WITHIN :], strict=True), strict=True):
        quickest_s = min(rail.time_s(count * 4, False) for rail in draw.rails)
        assert sum(taken_s) / 300 + draw.lateness_s < 1.3 * (quickest_s + draw.lateness_s)


@pytest.mark.parametrize(
    ("rails", "sizes", "lateness_s"),
    [
        ([VirtualRail(0.00390625, 1e6), VirtualRail(1e-5, 1e6)], [372], 0.0078125),
        (
            [VirtualRail(0.0001425, 17.7e6), VirtualRail(2.005e-5, 1.277e6), VirtualRail(6.27e-5, 10.72e6)],
            [15163],
            0.0,
        ),
        (
            [
                *[VirtualRail(0.00390625, 1e6)] * 2,
                VirtualRail(0.0003933784, 1e6),
                VirtualRail(5e-5, 13260310.0),
            ],
            [4267],
            0.0,
        ),
        (  # this rail is faster than its declared link, and slightly too slow for the declared rate
            [VirtualRail(0.001953125, 2341270.0), VirtualRail(0.00034365624505429025, 14987095.0)],
            [1, 9150],
            0.0,
        ),
    ],
)
def test_ranks_do_not_lose_where_they_once_did(
    rails: list[VirtualRail], sizes: list[int], lateness_s: float
) -> None:
    assert not loses(rails, sizes, lateness_s)


def test_small_calls_keep_the_quickest_rail() -> None:
    job = StripedJob([tcp(a_s=0.006), tcp(a_s=0.0004)], noise=0.2)
    calls(job, 12, SMALL)
    later = calls(job, 300, SMALL)
    other = [taken for taken in later if taken.shares() != {1: 1.0}]
    assert all(taken.plan.tried for taken in other)
    assert len(other) <= 2  # the slow rail is rarely tried again


@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_small_calls_take_rails_of_one_kind_in_turn(noise: float) -> None:
    job = StripedJob(
        [VirtualRail(0.0006, 8e6, rested=0.5), VirtualRail(0.0006, 8e6, rested=0.5)], noise=noise
    )
    calls(job, COMPARING, SMALL)
    later = calls(job, 200, SMALL)
    in_turn = sum(one.shares().keys() != next_one.shares().keys() for one, next_one in pairwise(later))
    assert in_turn >= 180
    one_s = job.rails[0].time_s(SMALL * 4, False)
    assert sorted(taken.time_s for taken in later)[100] <= 0.6 * one_s
    told = predict(job.planners[0], SMALL * 4)
    assert [tuple(split.shares) for split in told.splits if split.chosen] == [("r0",), ("r1",)]
    assert "take r0, r1 in turn, which is quicker than one of them" in told.why


@pytest.mark.parametrize("noise", [0.0, 0.3])
@pytest.mark.parametrize("rested", [1.0, 1.15])
def test_rails_of_one_kind_take_no_turns_where_that_is_not_quicker(noise: float, rested: float) -> None:
    job = StripedJob(
        [VirtualRail(0.0006, 8e6, rested=rested), VirtualRail(0.0006, 8e6, rested=rested)], noise=noise
    )
    calls(job, COMPARING, SMALL)
    later = calls(job, 1000, SMALL)
    one_s = job.rails[0].time_s(SMALL * 4, False)
    assert sum(taken.time_s for taken in later) <= 1.01 * 1000 * one_s


@pytest.mark.parametrize("slower_s", [0.0008, 0.002])
def test_rails_of_one_kind_take_no_turns_where_one_is_slower(slower_s: float) -> None:
    job = StripedJob([tcp(a_s=0.0006), tcp(a_s=slower_s)])
    calls(job, COMPARING, SMALL)
    later = calls(job, 1000, SMALL)
    assert sum(taken.time_s for taken in later) <= 1.01 * 1000 * job.rails[0].time_s(SMALL * 4, False)


def test_unlike_rails_take_no_turns() -> None:
    job = StripedJob([VirtualRail(0.0003, 12e6, "ina"), tcp(a_s=0.0004)], noise=0.5)
    calls(job, COMPARING, SMALL)
    later = calls(job, 200, SMALL)
    assert sum(taken.shares() == {0: 1.0} for taken in later) >= 190


@pytest.mark.parametrize("noise", [0.0, 0.3])
@pytest.mark.parametrize("better", [0, 1, 2])
def test_small_calls_find_the_quickest_rail_although_single_times_name_another(
    noise: float, better: int
) -> None:
    """If others did most of the work before the last rank starts, a rail seems up to three times as fast."""
    rails = [
        VirtualRail(550e-6, 1e9, early_s=350e-6),
        VirtualRail(650e-6, 1e9, "ina", early_s=500e-6),
        VirtualRail(600e-6, 1e9, "rdma", early_s=200e-6),
    ]
    rails[better].a_s, rails[better].early_s = 430e-6, 0.0
    job = StripedJob(rails, noise=noise)
    calls(job, 2 * COMPARING, SMALL)
    later = calls(job, 2000, SMALL)
    assert sum(taken.shares() == {better: 1.0} for taken in later) >= 1800
    assert sum(taken.time_s for taken in later) <= 1.05 * 2000 * rails[better].time_s(SMALL * 4, False)


def test_calls_of_several_classes_in_turn_compare_no_ways() -> None:
    """No block has calls of a single class, so ranks would learn nothing by taking a slower rail."""
    job = StripedJob([VirtualRail(0.0003, 12e6, "ina"), tcp(a_s=0.0004)])
    for _ in range(COMPARING):
        calls(job, 1, SMALL)
        calls(job, 1, SMALL // 4)
    slower = [taken for taken in job.taken[WITHIN:] if 1 in taken.shares()]
    assert all(taken.plan.tried for taken in slower)


@pytest.mark.parametrize("alone_first", [0, 2 * COMPARING])
def test_calls_of_several_classes_in_turn_leave_a_rail_that_becomes_slow(alone_first: int) -> None:
    """Results of earlier blocks expire if no more blocks come."""
    job = StripedJob([VirtualRail(0.0003, 12e6, "ina"), tcp(a_s=0.0004)])
    calls(job, alone_first, SMALL)
    for _ in range(COMPARING):
        calls(job, 1, SMALL)
        calls(job, 1, SMALL // 4)
    assert job.taken[-1].shares() == {0: 1.0}
    job.rails[0].a_s = 0.003
    for _ in range(10 * COMPARING):
        calls(job, 1, SMALL)
        calls(job, 1, SMALL // 4)
    assert sum(taken.shares() == {1: 1.0} for taken in job.taken[-200:]) >= 190


def test_surveys_of_small_calls_are_rare() -> None:
    job = StripedJob([tcp(), tcp()])
    calls(job, 40, SMALL)
    before = job.surveys
    calls(job, 1000, SMALL)
    assert 0 < (job.surveys - before) * (0.0003 + 0.0006) <= 0.025 * 1000 * 0.0006


def test_surveys_of_short_calls_are_rare_although_noise_makes_like_rails_drift() -> None:
    job = StripedJob([VirtualRail(80e-6, 1e9), VirtualRail(80e-6, 1e9)], noise=4.0)
    calls(job, 200, 16 * SMALL)
    before = job.surveys
    spent_s = sum(taken.time_s for taken in calls(job, 4000, 16 * SMALL))
    assert 0 < (job.surveys - before) * (0.0003 + 80e-6) <= 0.1 * spent_s


def test_a_late_short_call_does_not_delay_what_large_ones_learn() -> None:
    rails = [tcp(), tcp()]
    job = StripedJob(rails)
    calls(job, 2 * WITHIN)
    for rail in rails:
        rail.a_s += 0.05
    calls(job, 3, SMALL)
    for rail in rails:
        rail.a_s -= 0.05
    calls(job, 4)
    rails[1].rate /= 2
    *_, taken = calls(job, WITHIN)
    assert_split(taken, rails)


@pytest.mark.parametrize("latencies_s", [(80e-6, 240e-6), (80e-6, 300e-6, 500e-6), (3e-4, 4e-4, 6e-4)])
def test_surveys_of_short_calls_become_rarer_and_a_better_rail_is_found_all_the_same(
    latencies_s: tuple[float, ...],
) -> None:
    job = StripedJob([VirtualRail(a_s, 1e9) for a_s in latencies_s], noise=1.0)
    calls(job, 4000, SMALL)
    before = job.surveys
    spent_s = sum(taken.time_s for taken in calls(job, 4000, SMALL))
    assert 0 < (job.surveys - before) * (0.0003 + latencies_s[0]) <= 0.01 * spent_s
    last = len(latencies_s) - 1
    job.rails[last].a_s = latencies_s[0] / 2
    begin_s = job.now_s
    while any(taken.shares() != {last: 1.0} for taken in calls(job, 20, SMALL)):
        assert job.now_s - begin_s < 2.0


def test_short_calls_between_others_are_learnt() -> None:
    """The call before a short call always uses another rail."""
    job = StripedJob([tcp(), VirtualRail(0.0001, 12e6, "ina")], noise=0.05)
    for _ in range(60):
        job.call(LARGE)
        job.call(SMALL)
    planner = job.planners[0]
    assert predict(planner, SMALL * 4).state != "cold"
    assert job.call(SMALL).shares() == {1: 1.0}


def test_short_calls_are_hot_when_their_way_is_found() -> None:
    job = StripedJob([tcp(), tcp()])
    seen: list[str] = []
    for _ in range(COMPARING):
        job.call(SMALL)
        stage = predict(job.planners[0], SMALL * 4).state
        if not seen or seen[-1] != stage:
            seen.append(stage)
    assert seen == ["cold", "comparing", "hot"]


@pytest.mark.parametrize("slower", [8, 15])
@pytest.mark.parametrize("number", [6, 20])
def test_first_calls_that_all_waited_keep_no_rail_out(slower: int, number: int) -> None:
    """A neighbour takes the processors for 30 ms. This slows many short calls, all on the first rail."""
    job = StripedJob([VirtualRail(0.0002, 12e6, "ina"), VirtualRail(0.0004, 12e6)], noise=0.05)
    job.rails[0].a_s *= slower
    calls(job, number, 2 * SMALL)
    job.rails[0].a_s /= slower
    calls(job, COMPARING // 2, 2 * SMALL)
    later = calls(job, 300, 2 * SMALL)
    assert sum(taken.shares() == {0: 1.0} for taken in later) >= 290
