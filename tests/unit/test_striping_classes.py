# SPDX-License-Identifier: Apache-2.0
"""The rails that short calls use, chosen by the measured times of blocks of calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from railweave.hosts.striping.classes import BUDGET, CallClass
from railweave.hosts.striping.costs import SAMPLES, SURE, CostKey, CostTable
from railweave.hosts.striping.priors import StripedRail
from railweave.hosts.striping.splits import Way
from railweave.hosts.striping.surveys import Item

KINDS = ("ina", "tcp", "rdma")
SIZE = 16384
COUNT = SIZE // 4
KEY = CostKey("all_reduce", "float", SIZE)
SURVEY_S = 0.0003


class Learning:
    """A class of calls. The test gives the measured time of each choice of rails, without other calls."""

    def __init__(
        self, singles_s: tuple[float, ...], rate_bps: int = 10**9, parts_s: tuple[float, ...] | None = None
    ) -> None:
        """Take each rail's time for a single call (`singles_s`) and for a part of a split (`parts_s`)."""
        self.rails = tuple(range(len(singles_s)))
        striped = [StripedRail(KINDS[rail], rail, KINDS[rail], rate_bps) for rail in self.rails]
        self.call_class = CallClass(KEY, self.rails, CostTable(striped, hosts=4))
        self.op_index = 0
        for _ in range(SURE):
            for alone, times_s in ((True, singles_s), (False, parts_s or singles_s)):
                for rail, time_s in enumerate(times_s):
                    self.call_class.observe(Item(0, rail, KEY, self.rails, SIZE, alone, 0), time_s)

    def block(self, way: Way, time_us: float) -> Way:
        """Report the time of a block, and return the rails of the next block."""
        self.call_class.compare(Item(0, -1, KEY, self.rails, SIZE, False, 0, SAMPLES, way), time_us / 1e6)
        return self.measure()

    def measure(self, calls: int = 1000) -> Way:
        """Make `calls` calls and measure the last one. Return the rails of the next block."""
        self.call_class.counted(self.op_index + calls - 1, calls, COUNT)
        self.op_index += calls
        usual = self.call_class.choose(SIZE, COUNT)
        self.call_class.measured(self.op_index, (), SIZE, COUNT, usual, SURVEY_S)
        self.op_index += 2  # the survey
        return self.call_class.way

    def compare(self, time_us: Callable[[Way], float]) -> Counter[Way]:
        """Report blocks until there is nothing to compare. Return the number of blocks of each choice."""
        blocks: Counter[Way] = Counter()
        for _ in range(10 * SURE):
            way = self.call_class.way
            blocks[way] += 1
            self.block(way, time_us(way))
            if not self.call_class.comparing:
                return blocks
        raise AssertionError(f"blocks are compared for ever: {blocks}")


def test_a_split_is_compared_although_parts_have_taken_long() -> None:
    """Late single calls show nothing about short calls, and must not keep a rail out of all splits."""
    learning = Learning((1500e-6, 1600e-6), 10**8, parts_s=(1500e-6, 0.1))
    learning.measure()
    assert learning.compare(lambda way: 700 if way == (0, 1) else 1500)[0, 1] > 0
    learning.call_class.way = (0, 1)
    both = learning.call_class.choose(SIZE, COUNT)
    assert both.rails == (0, 1)


def test_one_lucky_block_does_not_hold_a_way() -> None:
    learning = Learning((500e-6, 520e-6))
    held = learning.measure()
    other = (1,) if held != (1,) else (0,)
    for lucky in (544, 482, 413):
        learning.block(held, lucky)
    for steady in (414, 427, 419):
        learning.block(other, steady)
    learning.compare(lambda _: 900)  # all later blocks are slow
    assert learning.call_class.way == other


def test_a_way_is_out_after_two_blocks_that_are_a_little_slower() -> None:
    learning = Learning((500e-6, 520e-6))
    held = learning.measure()
    blocks = learning.compare(lambda way: 400 if way == held else 440)
    del blocks[held]
    assert set(blocks.values()) == {2}
    assert learning.call_class.stage == "hot"


def test_a_way_that_was_much_slower_gets_another_block_in_its_time() -> None:
    learning = Learning((500e-6, 520e-6))
    held = learning.measure()
    slower = learning.compare(lambda way: 400 if way == held else 600)
    assert learning.call_class.way == held
    calls = 0
    while not learning.call_class.comparing:
        way = learning.measure()
        calls += 1000
        assert calls < 100_000
    assert way in slower
    assert way != held
    assert calls * BUDGET >= SAMPLES * 0.5  # the block costs half a block's time


@pytest.mark.parametrize("other_s", [1900e-6, 7000e-6])
def test_a_rail_whose_link_is_too_slow_gets_no_block(other_s: float) -> None:
    """The split takes half the time that either link needs for the whole call, with any latency."""
    learning = Learning((1900e-6, other_s), 10**8, parts_s=(1900e-6, 1900e-6))
    learning.measure()
    seen = {learning.block((0, 1), 1000) for _ in range(2 * SURE)}
    assert seen == {(0, 1)}
    assert learning.call_class.stage == "hot"


def test_a_block_is_long_where_calls_are_short() -> None:
    """Links that have rested exceed their rate at first. In a long block this ends, or matters little."""
    learning = Learning((200e-6, 190e-6))
    learning.measure()
    learning.block((1,), 200)
    calls, first = 2 * SURE + 4 * SAMPLES, learning.op_index
    learning.call_class.counted(first + calls - 2, calls - 1, COUNT)
    assert learning.call_class.block() is None
    learning.call_class.counted(first + calls - 1, 1, COUNT)
    assert learning.call_class.block() == (first + calls - 3 * SAMPLES, first + calls - 1)


@pytest.mark.parametrize(("times", "tried"), [(0.45, True), (0.7, False)])
def test_a_rail_that_seems_faster_gets_one_block_if_that_may_make_it_the_fastest(
    times: float, tried: bool
) -> None:
    """Single calls show less about a rail's speed than blocks: a job's first calls are slow on all rails."""
    learning = Learning((1200e-6, 2000e-6))
    learning.measure()
    learning.compare(lambda way: {(0,): 165, (1,): 320}.get(way, 400))
    assert learning.call_class.stage == "hot"
    for _ in range(2):
        learning.call_class.observe(Item(0, 1, KEY, learning.rails, SIZE, True, 0), 2000e-6 * times)
    assert (learning.measure() == (1,)) is tried
    assert learning.block((1,), 320) == (0,)
    assert not learning.call_class.comparing
