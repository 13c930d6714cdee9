# SPDX-License-Identifier: Apache-2.0
"""What rails cost, how a tensor is cut by it, and the states of learning."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from railweave._native.collectives import Collective, DType
from railweave.hosts.striping import surveys
from railweave.hosts.striping.costs import Fit, Line, RailCost
from railweave.hosts.striping.filling import ALIGNMENT, ENGAGE, STAY, choose, cut, time_of, water_fill
from railweave.hosts.striping.planner import quickest_of_short
from railweave.hosts.striping.priors import StripedRail, prior_lines
from railweave.hosts.striping.states import (
    CLASS_TRANSITIONS,
    RAIL_TRANSITIONS,
    ClassEvent,
    ClassState,
    RailEvent,
    RailState,
    next_class,
    next_rail,
)
from railweave.hosts.striping.surveys import Item
from railweave.hosts.striping.table import CostKey, CostTable, numbers_of

MIB = 1 << 20
KEY = CostKey("all_reduce", "float", MIB)
lines = st.builds(Line, st.floats(0, 0.01), st.floats(1e5, 1e10))

# ------------------------------------------------------------ what counts of a survey


def test_of_short_calls_that_went_alike_the_quickest_counts() -> None:
    def item(op_index: int, rail: int, size: int = 1024) -> Item:
        return Item(op_index, rail, KEY, (0, 1), size, alone=True, survey=0, generation=0)

    times = [(item(1, 0), 0.003), (item(2, 1), 0.001), (item(3, 0), 0.001), (item(4, 0, 512), 0.002)]
    found = [(each.op_index, time_s) for each, time_s in quickest_of_short(times)]
    assert found == [(3, 0.001), (2, 0.001), (4, 0.002)]
    long = [(item(1, 0), 0.3), (item(2, 0), 0.1)]
    assert quickest_of_short(long) == long


# ------------------------------------------------------------ one rail


def test_one_time_tells_bandwidth_and_the_anchor_latency() -> None:
    fit = Fit(MIB, anchor_s=0.001)
    fit.observe(MIB, 0.101)
    assert fit.line().a_s == pytest.approx(0.001)
    assert fit.line().rate == pytest.approx(MIB / 0.1)


def test_times_of_two_sizes_tell_the_latency_whatever_the_anchor_said() -> None:
    fit = Fit(MIB, anchor_s=0.0)
    for size in (MIB, MIB // 8) * 20:
        fit.observe(size, 0.01 + size / 1e7)
    line = fit.line()
    assert line.time_s(MIB) == pytest.approx(0.01 + MIB / 1e7, rel=0.01)
    assert line.time_s(MIB // 8) == pytest.approx(0.01 + MIB / 8e7, rel=0.1)


def test_one_outlier_is_clipped_and_a_second_one_believed() -> None:
    fit = Fit(MIB, 0.0)
    for _ in range(8):
        assert fit.observe(MIB, 0.1) is None
    assert fit.observe(MIB, 10.0) is None
    assert fit.line().time_s(MIB) < 0.1 * 1.2
    for _ in range(8):
        fit.observe(MIB, 0.1)
    assert fit.observe(MIB, 0.2) is None
    factor = fit.observe(MIB, 0.2)
    assert factor == pytest.approx(2.0, rel=0.05)
    assert fit.line().time_s(MIB) == pytest.approx(0.2)


def test_the_first_call_on_a_cold_rail_is_forgotten_when_the_next_is_quicker() -> None:
    fit = Fit(MIB, 0.0)
    fit.observe(MIB, 0.3)
    fit.observe(MIB, 0.1)
    assert fit.line().time_s(MIB) == pytest.approx(0.1)


def test_small_changes_are_followed() -> None:
    fit = Fit(MIB, 0.0)
    for time_s in [0.1] * 8 + [0.13] * 12:
        fit.observe(MIB, time_s)
    assert fit.line().time_s(MIB) == pytest.approx(0.13, rel=0.02)


def test_distrusted_costs_hold_until_the_next_time() -> None:
    cost = RailCost(MIB, 0.0)
    for _ in range(8):
        cost.observe(MIB, 0.1, alone=True, anchor_s=0.0)
    cost.distrust()
    assert cost.single_s(MIB) == pytest.approx(0.1)
    assert cost.observe(MIB, 0.3, alone=True, anchor_s=0.0)
    assert cost.single_s(MIB) == pytest.approx(0.3)


def test_what_is_known_of_a_rail_alone_changes_with_its_speed_in_company() -> None:
    cost = RailCost(MIB, 0.0)
    for alone in (True, True, False, False, False):
        cost.observe(MIB if alone else MIB // 2, 0.1 if alone else 0.05, alone, 0.0)
    for _ in range(2):
        cost.observe(MIB // 2, 0.2, alone=False, anchor_s=0.0)
    assert cost.single_s(MIB) == pytest.approx(0.4, rel=0.1)


def test_one_slow_call_alone_does_not_hide_how_fast_parts_are() -> None:
    cost = RailCost(MIB, 0.0)
    cost.observe(MIB, 1.0, alone=True, anchor_s=0.0)
    for _ in range(3):
        cost.observe(MIB // 4, 0.025, alone=False, anchor_s=0.0)
    assert cost.part().time_s(MIB // 4) == pytest.approx(0.025)


@given(st.lists(st.tuples(st.integers(1, 2 * MIB), st.floats(1e-7, 200)), min_size=1), st.floats(0, 1))
def test_any_times_give_a_line_that_rises(seen: list[tuple[int, float]], anchor_s: float) -> None:
    fit = Fit(MIB, anchor_s)
    for size, time_s in seen:
        fit.observe(size, time_s)
    line = fit.line()
    assert line.a_s >= 0
    assert 0 < line.rate < float("inf")


def test_costs_are_those_of_the_nearest_class_then_those_of_the_kind() -> None:
    table = CostTable([StripedRail("a", 0, "tcp", 10**8), StripedRail("b", 1, "ina", 10**8)], hosts=4)
    prior = prior_lines([StripedRail("a", 0, "tcp", 10**8)], 4, "all_reduce")[0]
    assert table.part(KEY, 0) == prior
    table.observe(CostKey("all_reduce", "float", 8 * MIB), 0, 8 * MIB, 1.0, alone=True)
    table.observe(CostKey("all_reduce", "float", 1024), 0, 1024, 0.001, alone=True)
    assert table.single_s(KEY, 0, MIB) == pytest.approx(1 / 8, rel=0.05)
    assert table.latency_s(KEY, 0) == pytest.approx(0.001, rel=0.2)
    assert table.get(KEY, 0) is None
    assert table.part(CostKey("all_reduce", "int", MIB), 0) == table.part(KEY, 0)
    assert table.part(KEY, 1) == prior_lines([StripedRail("b", 1, "ina", 10**8)], 4, "all_reduce")[1]


def test_another_collective_is_taken_to_use_as_much_of_a_link() -> None:
    rails = [StripedRail("a", 0, "tcp", 10**8)]
    table = CostTable(rails, hosts=4)
    prior = {name: prior_lines(rails, 4, name)[0] for name in ("all_reduce", "all_gather")}
    half_s = 2 * prior["all_reduce"].time_s(MIB)
    table.observe(KEY, 0, MIB, half_s, alone=True)
    gather = CostKey("all_gather", "int", MIB)
    assert table.single_s(gather, 0, MIB) == pytest.approx(2 * prior["all_gather"].time_s(MIB), rel=0.02)
    assert table.least_s(gather, 0, MIB) == table.single_s(gather, 0, MIB)
    far = CostKey("all_gather", "int", 64 * MIB)
    assert table.least_s(far, 0, 64 * MIB) == 64 * MIB / prior["all_gather"].rate


def test_latency_is_what_the_bytes_of_smaller_calls_do_not_take() -> None:
    table = CostTable([StripedRail("a", 0, "tcp", 10**8)], hosts=4)
    rate = prior_lines([StripedRail("a", 0, "tcp", 10**8)], 4, "all_reduce")[0].rate
    table.observe(CostKey("all_reduce", "float", MIB // 2), 0, MIB // 2, 0.002 + MIB // 2 / rate, alone=False)
    assert table.latency_s(KEY, 0) == pytest.approx(0.002)


def test_a_switch_that_sums_takes_a_lane_for_each_small_number() -> None:
    assert numbers_of(Collective.ALL_REDUCE, DType.BFLOAT16) == "half"
    assert numbers_of(Collective.ALL_REDUCE, DType.FLOAT64) == "float"
    assert numbers_of(Collective.REDUCE_SCATTER, DType.UINT8) == "int8"
    assert numbers_of(Collective.BROADCAST, DType.BFLOAT16) == "int"
    rails = [StripedRail("a", 0, "tcp", 10**8), StripedRail("b", 1, "ina", 10**8)]
    table = CostTable(rails, hosts=4)
    for rail in (0, 1):
        table.observe(CostKey("all_reduce", "float", MIB), rail, MIB, 0.1, alone=True)
    times = [table.single_s(CostKey("all_reduce", "half", MIB), rail, MIB) for rail in (0, 1)]
    assert times == pytest.approx([0.1, 0.2], rel=0.01)
    unknown = CostTable(rails, hosts=4)
    rates = [unknown.part(CostKey("all_reduce", numbers, MIB), 1).rate for numbers in ("int", "half", "int8")]
    assert rates == [rates[0], rates[0] / 2, rates[0] / 4]


def test_a_ring_is_taken_to_grow_slower_with_hosts_and_a_switch_not() -> None:
    rails = [StripedRail("a", 0, "tcp", 10**8), StripedRail("b", 1, "ina", 10**8)]
    two, six = (prior_lines(rails, hosts, "all_reduce") for hosts in (2, 6))
    assert six[0].a_s == 5 * two[0].a_s
    assert six[0].rate == pytest.approx(two[0].rate * 0.6)
    assert six[1] == two[1]


# ------------------------------------------------------------ the split


@given(st.lists(lines, min_size=1, max_size=8), st.integers(1, 1 << 30))
def test_all_rails_that_take_part_end_at_once_and_the_others_would_end_later(
    costs: list[Line], size: int
) -> None:
    sizes = water_fill(dict(enumerate(costs)), size)
    assert sum(sizes.values()) == pytest.approx(size, rel=1e-6)
    end_s = max(costs[rail].time_s(part) for rail, part in sizes.items())
    for rail, line in enumerate(costs):
        if rail in sizes:
            assert line.time_s(sizes[rail]) == pytest.approx(end_s, rel=1e-6)
        else:
            assert line.a_s >= end_s * (1 - 1e-9)


def chosen(singles: list[float], costs: list[Line], engaged: set[int] = frozenset()) -> set[int]:  # type: ignore[assignment]
    split = choose(dict(enumerate(singles)), dict(enumerate(costs)), 4 << 20, 1 << 20, engaged)
    return {rail for rail, _, _ in split.parts}


@given(st.lists(lines, min_size=1, max_size=6), st.integers(1, 1 << 28), st.sets(st.integers(0, 5)))
def test_a_choice_is_never_slower_than_the_best_rail_alone(
    costs: list[Line], count: int, engaged: set[int]
) -> None:
    singles = {rail: line.time_s(4 * count) for rail, line in enumerate(costs)}
    split = choose(singles, dict(enumerate(costs)), 4 * count, count, engaged)
    assert split.time_s <= min(singles.values()) * (ENGAGE if len(engaged) == 1 else 1)
    assert sum(part for _, _, part in split.parts) == count
    if len(split.parts) > 1:
        assert split.time_s == time_of(split.parts, dict(enumerate(costs)), 4)
        assert split.time_s <= min(singles.values()) / STAY


def test_a_further_rail_is_engaged_for_five_per_cent_and_left_below_two() -> None:
    fast, slow, slower = (Line(0.0, (4 << 20) * part) for part in (1, 0.04, 0.01))
    assert chosen([1.0, 25.0], [fast, slow]) == {0}
    assert chosen([1.0, 25.0], [fast, slow], {0, 1}) == {0, 1}
    assert chosen([1.0, 100.0], [fast, slower], {0, 1}) == {0}


def test_one_rail_is_left_for_another_only_if_that_is_clearly_quicker() -> None:
    assert chosen([1.04, 1.0], [], {0}) == {0}
    assert chosen([1.06, 1.0], [], {0}) == {1}


def test_a_split_that_was_measured_slow_loses_against_one_rail() -> None:
    assert len(chosen([1.0, 1.0], [Line(0.0, 2e6), Line(0.0, 2e6)], {0, 1})) == 1


def test_a_part_that_would_be_less_than_the_alignment_is_judged_by_what_it_really_is() -> None:
    costs = {0: Line(0.0019, 4e6), 1: Line(0.0039, 1e6)}  # the least part takes the slow rail 4.9 ms
    split = choose({0: 0.0041, 1: 0.0127}, costs, 8748, 2187)
    assert split.parts == ((0, 0, 2187),)


@given(st.dictionaries(st.integers(0, 9), st.floats(1e-3, 1e12), min_size=1), st.integers(1, 1 << 24))
def test_parts_cover_the_tensor_at_the_alignment(sizes: dict[int, float], count: int) -> None:
    parts = cut(dict(sorted(sizes.items())), count)
    assert sum(part for _, _, part in parts) == count
    end = 0
    for _, offset, part in parts:
        assert offset == end
        assert offset % ALIGNMENT == 0
        assert part > 0
        end += part


def test_a_split_takes_as_long_as_its_slowest_part() -> None:
    assert time_of([(0, 0, 10), (1, 10, 30)], {0: Line(1.0, 10.0), 1: Line(0.0, 100.0)}, 4) == 5.0


# ------------------------------------------------------------ states


@pytest.mark.parametrize(("state", "event"), list(itertools.product(ClassState, ClassEvent)))
def test_every_event_in_every_state_of_a_class(state: ClassState, event: ClassEvent) -> None:
    after = next_class(state, event)
    expected = {
        ClassEvent.PROBED: ClassState.WARM if state is ClassState.COLD else state,
        ClassEvent.LOADED: ClassState.HOT if state is ClassState.COLD else state,
        ClassEvent.SETTLED: ClassState.HOT if state is ClassState.WARM else state,
        ClassEvent.DRIFTED: ClassState.WARM if state is ClassState.HOT else state,
    }
    assert after is expected[event]


@pytest.mark.parametrize(("state", "event"), list(itertools.product(RailState, RailEvent)))
def test_every_event_in_every_state_of_a_rail(state: RailState, event: RailEvent) -> None:
    after = next_rail(state, event)
    expected = {
        RailEvent.DIED: RailState.DOWN,
        RailEvent.RETURNED: RailState.RECOVERING if state is RailState.DOWN else state,
        RailEvent.MEASURED: RailState.UP if state is RailState.RECOVERING else state,
    }
    assert after is expected[event]


def test_tables_hold_nothing_else() -> None:
    assert len(CLASS_TRANSITIONS) == len(ClassState) * len(ClassEvent)
    assert len(RAIL_TRANSITIONS) == len(RailState) * len(RailEvent)


# ------------------------------------------------------------ surveys


def items(count: int) -> list[Item]:
    return [Item(place, 0, KEY, (0, 1), 100, True, survey=100, generation=0) for place in range(count)]


def survey(asked: Sequence[Item], *ranks: dict[int, dict[int, tuple[int, int]]]) -> list[float | None]:
    """Return what the ranks agree on, of starts and ends in ns by op index and rail."""
    whole = [
        {op: {rail: (*times_ns, 100) for rail, times_ns in by_rail.items()} for op, by_rail in times.items()}
        for times in ranks
    ]
    lanes = np.max([surveys.encode(asked, times) for times in whole], axis=0)
    return [time_s for _, time_s in surveys.decode(asked, lanes.tolist())]


def test_the_time_from_the_last_start_to_the_last_end_counts_whatever_the_clocks() -> None:
    own = {100: {0: (0, 50_000)}, 0: {0: (1_050_000, 7_050_000)}, 1: {0: (7_050_000, 9_050_000)}}
    hour = 3_600_000_000_000
    late = {100: {1: (hour, hour + 90_000)}, 0: {0: (hour + 5_090_000, hour + 6_090_000)}}
    assert survey(items(3), own, late) == [0.002, None, None]
    assert survey(items(3), own, own) == [0.006, 0.002, None]


def test_a_rail_s_part_has_a_time_when_all_of_it_is_done() -> None:
    for done, time_s in ((60, None), (100, 0.002)):
        times = {100: {0: (0, 0, 256)}, 0: {0: (1_000_000, 3_000_000, done)}}
        assert surveys.decode(items(1), surveys.encode(items(1), times).tolist()) == [(items(1)[0], time_s)]


def test_a_time_lies_between_the_least_and_the_longest_of_a_rank_wherever_the_survey_ended() -> None:
    for ended in range(0, 9_000_000, 500_000):
        own = {100: {0: (0, ended)}, 0: {0: (10_000_000, 17_000_000)}}
        late = {100: {0: (0, 4_000_000)}, 0: {0: (15_000_000, 18_000_000)}}
        (time_s,) = survey(items(1), own, late)
        assert time_s is not None
        assert 0.003 <= time_s <= 0.007


@given(st.lists(st.integers(-(1 << 70), 1 << 70), min_size=3, max_size=3))
def test_no_time_overflows_a_lane(times_ns: list[int]) -> None:
    start_ns, end_ns, since_ns = times_ns
    (time_s,) = survey(items(1), {100: {0: (0, since_ns)}, 0: {0: (start_ns, end_ns)}})
    assert time_s is None or 0 < time_s < 430


def test_a_survey_has_room_for_what_is_asked() -> None:
    asked = items(surveys.MOST)
    times_ns = {100: {0: (0, 0)}, **{place: {0: (0, 1000 * (place + 1))} for place in range(surveys.MOST)}}
    assert survey(asked, times_ns) == pytest.approx([1e-6 * (place + 1) for place in range(surveys.MOST)])


def test_the_first_survey_tells_whether_all_start_from_the_same() -> None:
    def result(*inputs: tuple[str, str]) -> list[int]:
        return [int(max(lane)) for lane in zip(*(surveys.opening(*each) for each in inputs), strict=True)]

    assert surveys.agreed(result(("o", "c"), ("o", "c"))) == (True, True)
    assert surveys.agreed(result(("o", "c"), ("o", ""), ("o", "c"))) == (True, False)
    assert surveys.agreed(result(("o", "c"), ("p", "c"))) == (False, True)
