# SPDX-License-Identifier: Apache-2.0
"""The costs of rails, the split of a tensor by these costs, and the results of surveys."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from railweave._native.collectives import Collective, DType
from railweave.hosts.striping import surveys
from railweave.hosts.striping.costs import (
    DOUBT,
    LIKELY,
    SAMPLES,
    SURE,
    CostKey,
    CostTable,
    Slowness,
    numbers_of,
)
from railweave.hosts.striping.priors import Line, StripedRail, prior_lines
from railweave.hosts.striping.splits import ENGAGE, best_split, choose, time_of
from railweave.hosts.striping.surveys import Item

MIB = 1 << 20
KEY = CostKey("all_reduce", "float", MIB)
lines = st.builds(Line, st.floats(0, 0.01), st.floats(1e5, 1e10))

# ------------------------------------------------------------ one rail


def slowness_of(*values: float) -> Slowness:
    slowness = Slowness()
    for value in values:
        slowness.observe(value)
    return slowness


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ([3.0], 3.0),
        ([3.0, 1.0, 1.0], 1.0),  # the first call found the rail cold
        ([*[1.0] * 8, 100.0], 1.0),
        ([1.0, 1.1, 40.0, 1.0, 1.1, 1.1], 1.075),  # one call waited for a processor
        ([*[1.0] * 20, *[1.2] * SAMPLES], 1.2),
    ],
)
def test_the_middle_of_the_latest_times_tells(values: list[float], told: float) -> None:
    assert slowness_of(*values).value == pytest.approx(told)


def test_one_outlier_tells_nothing_and_a_second_one_is_believed() -> None:
    slowness = slowness_of(*[1.0] * 8, 100.0, *[1.0] * 8)
    assert slowness.observe(2.0) is None
    assert slowness.observe(2.0) == pytest.approx(2.0)
    assert (slowness.value, slowness.samples) == (2.0, 2)
    assert slowness.observe(0.5) is None
    assert slowness.observe(0.5) is not None
    assert slowness.value == 0.5


def test_blocks_of_calls_tell_more_than_single_ones_until_these_show_a_change() -> None:
    slowness = slowness_of(3.0, 3.1)
    slowness.settle(1.0)
    assert (slowness.value, slowness.single, slowness.samples) == (1.0, 3.05, SURE)
    slowness.settle(1.2)
    assert slowness.value == 1.1
    slowness.settle(2.0)  # far from the earlier values
    assert slowness.value == 2.0
    assert slowness_of().samples == 0
    assert [slowness.observe(value) is None for value in (3.0, 1.0, 1.0)] == [True, True, False]
    assert slowness.value == 1.0


RAILS = [StripedRail("a", 0, "tcp", 10**8), StripedRail("b", 1, "ina", 10**8)]


@pytest.fixture
def table() -> CostTable:
    return CostTable(RAILS, hosts=4)


def key_of(size: int, collective: str = "all_reduce", numbers: str = "float") -> CostKey:
    return CostKey(collective, numbers, size)


def prior(key: CostKey, rail: int = 0) -> Line:
    return prior_lines(RAILS, 4, key.collective, size=key.size_class)[rail]


def observe(table: CostTable, key: CostKey, *seen: float, alone: bool = True, block: bool = False) -> None:
    """Observe times of the first rail, as multiples of its prior."""
    for slowness in seen:
        size = key.size_class
        table.observe((key, 0, alone), size, slowness * prior(key).time_s(size), block)


def slowness_in(table: CostTable, key: CostKey) -> float:
    """Return the first rail's time for a whole call, as a multiple of its prior."""
    return table.single_s(key, 0, key.size_class) / prior(key).time_s(key.size_class)


def test_a_block_on_links_that_have_rested_is_not_believed_to_be_faster_than_links_are(
    table: CostTable,
) -> None:
    key = key_of(16384)
    observe(table, key, 0.3, alone=False, block=True)
    assert table.line(key, 0).time_s(16384) == pytest.approx(16384 / prior(key).rate)


def test_costs_are_those_of_the_nearest_class_then_those_of_the_kind(table: CostTable) -> None:
    assert table.line(KEY, 0) == prior(KEY)
    for size, slowness in ((8 * MIB, 1.5), (64 * MIB, 9.0), (1024, 7.0)):
        observe(table, key_of(size), slowness)
    assert slowness_in(table, KEY) == pytest.approx(1.5)
    assert table.samples(KEY, 0, alone=True) == 0
    assert table.place(KEY, 0, True) == (key_of(8 * MIB), 0, True)
    assert slowness_in(table, key_of(4096)) == pytest.approx(7)
    assert table.line(KEY, 1) == prior(KEY, 1)


def test_another_collective_is_taken_to_use_as_much_of_a_link(table: CostTable) -> None:
    observe(table, KEY, 2.0)
    assert slowness_in(table, key_of(MIB, "all_gather", "int")) == pytest.approx(2)


def test_a_rail_is_doubted_that_is_slow_but_not_hopeless() -> None:
    key, rails = key_of(1024), range(4)
    table = CostTable([StripedRail(f"r{rail}", rail, "tcp", 10**8) for rail in rails], hosts=4)
    for rail, slower in zip(rails, (1, 2, 5, 20), strict=True):
        for _ in range(SURE):
            table.observe((key, rail, True), 1024, slower * 300e-6)
    table.doubt(key, rails, 1024)
    assert [table.samples(key, rail, True) for rail in rails] == [SURE, SURE, 1, SURE]


def test_a_switch_that_sums_takes_a_lane_for_each_small_number(table: CostTable) -> None:
    assert numbers_of(Collective.ALL_REDUCE, DType.BFLOAT16) == "half"
    assert numbers_of(Collective.ALL_REDUCE, DType.FLOAT64) == "float"
    assert numbers_of(Collective.REDUCE_SCATTER, DType.UINT8) == "int8"
    assert numbers_of(Collective.BROADCAST, DType.BFLOAT16) == "int"
    kinds = [key_of(MIB, numbers=numbers) for numbers in ("int", "half", "int8")]
    rates = [table.line(key, 1).rate for key in kinds]
    assert rates == [rates[0], rates[0] / 2, rates[0] / 4]
    for rail in (0, 1):
        table.observe((KEY, rail, True), MIB, 0.1)
    times = [table.single_s(kinds[1], rail, MIB) for rail in (0, 1)]
    assert times == pytest.approx([0.1, 0.2], rel=0.01)


def test_a_ring_is_taken_to_grow_slower_with_hosts_and_a_switch_not() -> None:
    two, six = (prior_lines(RAILS, hosts, "all_reduce") for hosts in (2, 6))
    assert six[0].a_s == 5 * two[0].a_s
    assert six[0].rate == pytest.approx(two[0].rate * 0.6)
    assert six[1] == two[1]


# ------------------------------------------------------------ the split


def chosen(singles: list[float], costs: list[Line], engaged: Sequence[int] = ()) -> set[int]:
    split = best_split(dict(enumerate(costs)), 4 << 20, 1 << 20, engaged)
    return set(choose(dict(enumerate(singles)), split, 1 << 20, engaged).rails)


@given(st.lists(lines, min_size=1, max_size=6), st.integers(1, 1 << 28), st.sets(st.integers(0, 5)))
def test_a_choice_is_never_slower_than_the_best_rail_alone(
    costs: list[Line], count: int, engaged: set[int]
) -> None:
    singles = {rail: line.time_s(4 * count) for rail, line in enumerate(costs)}
    split = choose(
        singles, best_split(dict(enumerate(costs)), 4 * count, count, engaged), count, sorted(engaged)
    )
    assert split.time_s <= min(singles.values()) * (ENGAGE if len(engaged) == 1 else 1)
    assert sum(part for _, _, part in split.parts) == count
    if len(split.parts) > 1:
        assert split.time_s == time_of(split.parts, dict(enumerate(costs)), 4)


FAST, SLOW = (Line(0.0, (4 << 20) * part) for part in (1, 0.04))
HALF = Line(0.0, 2e6)


@pytest.mark.parametrize(
    ("singles", "costs", "engaged", "rails"),
    [
        # A further rail is engaged for 5 %, and kept while it helps.
        ([1.0, 25.0], [FAST, SLOW], (), {0}),
        ([1.0, 25.0], [FAST, SLOW], (0, 1), {0, 1}),
        ([0.95, 25.0], [FAST, SLOW], (0, 1), {0}),
        ([1.0, 1.0, 25.0], [FAST, FAST, SLOW], (), {0, 1}),
        ([1.0, 1.0, 25.0], [FAST, FAST, SLOW], (0, 1, 2), {0, 1, 2}),
        # Beside others, a rail takes 2.5 times as long. Only a split over all three rails is faster.
        ([1.0, 1.0, 1.0], [Line(0.0, (4 << 20) / 2.5)] * 3, (), {0, 1, 2}),
        # A rail is replaced by a rail that is 5 % faster.
        ([1.04, 1.0], [Line(0.0, 1.0)] * 2, (0,), {0}),
        ([1.06, 1.0], [Line(0.0, 1.0)] * 2, (0,), {1}),
        ([1.0, 1.0], [HALF, HALF], (0, 1), {0}),  # the split was measured as slow
    ],
)
def test_rails_are_engaged_that_pay(
    singles: list[float], costs: list[Line], engaged: Sequence[int], rails: set[int]
) -> None:
    assert chosen(singles, costs, engaged) == rails


def test_a_part_that_would_be_less_than_the_alignment_is_judged_by_what_it_really_is() -> None:
    costs = {0: Line(0.0019, 4e6), 1: Line(0.0039, 1e6)}  # the least part takes the slow rail 4.9 ms
    split = choose({0: 0.0041, 1: 0.0127}, best_split(costs, 8748, 2187), 2187)
    assert split.parts == ((0, 0, 2187),)


# ------------------------------------------------------------ surveys


def items(count: int) -> list[Item]:
    return [Item(place, 0, KEY, (0, 1), 100, True, survey=100) for place in range(count)]


def slices(times: dict[int, dict[int, tuple[int, int, int]]]) -> surveys.Slices:
    """Return slices with these starts and ends in ns and these bytes, by op index and rail."""
    rows = [(op, rail, *each) for op, by_rail in times.items() for rail, each in by_rail.items()]
    return np.array(rows, np.int64)


def survey(asked: Sequence[Item], *ranks: dict[int, dict[int, tuple[int, int]]]) -> list[float | None]:
    """Return the times on which the ranks agree, from starts and ends in ns by op index and rail."""
    whole = [
        {op: {rail: (*times_ns, 100) for rail, times_ns in by_rail.items()} for op, by_rail in times.items()}
        for times in ranks
    ]
    lanes = np.max([surveys.encode(asked, slices(times)) for times in whole], axis=0)
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
        assert surveys.decode(items(1), surveys.encode(items(1), slices(times)).tolist()) == [
            (items(1)[0], time_s)
        ]


def test_a_time_lies_between_the_least_and_the_longest_of_a_rank_wherever_the_survey_ended() -> None:
    for ended in range(0, 9_000_000, 500_000):
        own = {100: {0: (0, ended)}, 0: {0: (10_000_000, 17_000_000)}}
        late = {100: {0: (0, 4_000_000)}, 0: {0: (15_000_000, 18_000_000)}}
        (time_s,) = survey(items(1), own, late)
        assert time_s is not None
        assert 0.003 <= time_s <= 0.007


@given(st.lists(st.integers(-(1 << 63), (1 << 63) - 1), min_size=3, max_size=3))
def test_no_time_overflows_a_lane(times_ns: list[int]) -> None:
    start_ns, end_ns, since_ns = times_ns
    (time_s,) = survey(items(1), {100: {0: (0, since_ns)}, 0: {0: (start_ns, end_ns)}})
    assert time_s is None or 0 < time_s < 430


def test_a_survey_has_room_for_what_is_asked() -> None:
    times_ns = {100: {0: (0, 0)}, **{place: {0: (0, 1000 * (place + 1))} for place in range(surveys.MOST)}}
    told = survey(items(surveys.MOST), times_ns)
    assert told == pytest.approx([1e-6 * (place + 1) for place in range(surveys.MOST)])


def block(ends_ns: Sequence[Sequence[int]], rail: int = -1) -> float | None:
    """Return a survey's time for a block of calls, or for one rail's part, given the ends of all parts."""
    item = Item(1, rail, KEY, (0, 1), 100, True, survey=100, until=len(ends_ns) - 1, way=(0,))
    times = {
        op: {rail: (min(ends) - 1_000_000, end_ns, 100) for rail, end_ns in enumerate(ends)}
        for op, ends in enumerate(ends_ns)
    }
    ((_, time_s),) = surveys.decode([item], surveys.encode([item], slices(times)).tolist())
    return time_s


def test_a_block_tells_the_mean_time_between_ends_but_for_the_longest() -> None:
    ends_ns = [1_000_000 * place for place in range(9)]
    assert block([[end] for end in [*ends_ns, 100_000_000, 200_000_000]]) == pytest.approx(0.001)
    assert block([[end, end - 500_000] for end in ends_ns]) == pytest.approx(0.001)
    assert block([[end, end + 500_000] for end in ends_ns], rail=1) == pytest.approx(0.0015)
    assert block([[end] for end in ends_ns[:-1]] + [[]]) is None
    assert block([[end, end] for end in ends_ns[:-1]] + [[8_000_000]], rail=1) is None


def test_the_first_survey_tells_whether_all_start_from_the_same() -> None:
    def result(*inputs: tuple[str, str]) -> list[int]:
        return [int(max(lane)) for lane in zip(*(surveys.opening(*each) for each in inputs), strict=True)]

    assert surveys.agreed(result(("o", "c"), ("o", "c"))) == (True, True)
    assert surveys.agreed(result(("o", "c"), ("o", ""), ("o", "c"))) == (True, False)
    assert surveys.agreed(result(("o", "c"), ("p", "c"))) == (False, True)


# ------------------------------------------------------------ what a part may take


def expected(table: CostTable, key: CostKey, rail: int = 0) -> float:
    """Return the longest time that a part is expected to take, as a multiple of the rail's prior."""
    promised_s = prior(key, rail).time_s(key.size_class)
    assert table.expected_s(key, rail, key.size_class, alone=True) == pytest.approx(
        table.expected_s(key, rail, key.size_class, alone=False)
    )
    return table.expected_s(key, rail, key.size_class, alone=False) / promised_s


@pytest.mark.parametrize(
    ("key", "rail", "longest"),
    [
        (key_of(8 * MIB), 0, 1.2),
        (key_of(16 * MIB), 0, LIKELY * 1.2),
        (key_of(8 * MIB, "broadcast", "int"), 0, DOUBT * 1.2),
        (key_of(8 * MIB, numbers="half"), 0, DOUBT * 1.2),
        (key_of(8 * MIB), 1, DOUBT),
    ],
)
def test_a_part_may_take_longer_the_less_is_known(
    table: CostTable, key: CostKey, rail: int, longest: float
) -> None:
    observe(table, key_of(8 * MIB), 1.2, alone=False)
    assert expected(table, key, rail) == pytest.approx(longest)


def test_a_rail_that_is_back_is_doubted_until_it_has_been_measured_in_any_long_call(table: CostTable) -> None:
    observe(table, key_of(8 * MIB), 1.0, alone=False)
    table.distrust(0)
    assert expected(table, key_of(16 * MIB)) == pytest.approx(DOUBT)
    observe(table, key_of(4096, "broadcast", "int"), 5.0, alone=False)
    assert expected(table, key_of(16 * MIB)) == pytest.approx(DOUBT)
    for slowness, believed in [(0.5, 1.0), (4.0, 4.0)]:
        other = key_of(8 * MIB, "broadcast", "int")
        table.known.pop((other, 0, False), None)
        observe(table, other, slowness, alone=False)
        assert expected(table, key_of(16 * MIB)) == pytest.approx(LIKELY * believed)


def test_where_no_rate_is_known_calls_of_another_size_tell_what_to_expect() -> None:
    table = CostTable([StripedRail(f"r{i}", i, "tcp") for i in range(2)], 3)
    assert table.expected_s(key_of(16 * MIB), 0, 16 * MIB, alone=False) == 0.0
    table.observe((key_of(8 * MIB), 0, False), 8 * MIB, 2.0)
    longest_s = table.expected_s(key_of(16 * MIB), 0, 16 * MIB, alone=False)
    assert longest_s == pytest.approx(2 * LIKELY * 2.0, rel=0.01)
