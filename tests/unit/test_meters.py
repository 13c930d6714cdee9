# SPDX-License-Identifier: Apache-2.0
"""Meters in virtual time, compared with RFC 2698's color-blind two rate three color marker.

BMv2 takes tokens from the peak bucket before it checks the committed bucket, as the RFC does. It counts whole
tokens since the start of the switch. A test cannot stop BMv2's clock. So the vectors of BMv2 have only two
kinds of rates: 0, and rates that no test exceeds.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from fractions import Fraction

import pytest
from vectors.case import case

from railweave.switch.pipeline import MeterConfig, Pipeline, Target, exact

HEADERS = 11 + 63
COLOR = 11 + (1 + 7 + 33 + 64 + 71 + 208) // 8  # behind the results of registers


@dataclass
class Marker:
    """The marker of RFC 2698, section 3. Rates are per second, and times are in microseconds."""

    config: MeterConfig

    def __post_init__(self) -> None:
        self.committed = Fraction(self.config.cburst)
        self.peak = Fraction(self.config.pburst)
        self.last_us = 0

    def mark(self, now_us: int, cost: int) -> int:
        passed = Fraction(now_us - self.last_us, 1_000_000)
        self.last_us = now_us
        self.committed = min(self.committed + passed * self.config.cir, Fraction(self.config.cburst))
        self.peak = min(self.peak + passed * self.config.pir, Fraction(self.config.pburst))
        if self.peak < cost:
            return 2
        self.peak -= cost
        if self.committed < cost:
            return 1
        self.committed -= cost
        return 0


@pytest.fixture
def cells() -> Pipeline:
    pipeline = case("cells").pipeline()
    pipeline.tables["I.counted"].insert([exact(1)], Target("I.hit", (1,)))
    return pipeline


def colours(pipeline: Pipeline, now_us: int, size: int) -> tuple[int, int]:
    """Return the colors of the direct meter (bytes) and of the indirect meter (packets)."""
    packet = bytes([2, 1]) + bytes(9) + bytes(size - 11)
    [(_, out)] = pipeline.inject(1, packet, now_us)
    return out[COLOR] >> 4, out[COLOR] & 15


@pytest.mark.parametrize("seed", range(3))
def test_as_rfc_2698_says(cells: Pipeline, seed: int) -> None:
    # Every time step gives whole tokens, because BMv2 counts whole tokens only.
    packets, octets = MeterConfig(2_000, 2, 4_000, 3), MeterConfig(400_000, 900, 1_000_000, 2_000)
    cells.arrays.set_meters("I.police", range(2, 3), packets)
    [entry] = cells.tables["I.counted"].entries()
    cells.tables["I.counted"].set_direct_meter(entry.handle, octets)
    rng, now_us = random.Random(seed), 0
    indirect, direct = Marker(packets), Marker(octets)
    seen = set()
    for _ in range(400):
        now_us += rng.choice((0, 0, 0, 0, 500, 500, 1000))
        size = rng.choice((HEADERS, 100, 300, 900))
        want = direct.mark(now_us, size), indirect.mark(now_us, 1)
        assert colours(cells, now_us, size) == want
        seen.add(want)
    assert {color for color, _ in seen} == {color for _, color in seen} == {0, 1, 2}


def test_configurations_are_checked_and_end_with_their_entry(cells: Pipeline) -> None:
    config = MeterConfig(1, 2, 3, 4)
    [entry] = cells.tables["I.counted"].entries()
    cells.tables["I.counted"].set_direct_meter(entry.handle, config)
    assert cells.tables["I.counted"].entry(entry.handle).meter == config
    cells.tables["I.counted"].delete(entry.handle)
    handle = cells.tables["I.counted"].insert([exact(1)], Target("I.hit", (1,)))
    assert cells.tables["I.counted"].entry(handle).meter is None
    for wrong in ((5, 1, 4, 1), (-1, 1, 1, 1), (1, 1, 1, 1 << 63)):
        with pytest.raises(ValueError, match="meter"):
            MeterConfig(*wrong)
    cells.arrays.set_meters("I.police", range(3), config)
    cells.arrays.set_meters("I.police", range(1, 2), None)
    assert cells.arrays.meters("I.police", range(3)) == [config, None, config]
    with pytest.raises(ValueError, match="belongs to the entries"):
        cells.arrays.set_meters("I.limit", range(0, 1), config)
