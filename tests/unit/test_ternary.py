# SPDX-License-Identifier: Apache-2.0
"""Ternary and range lookup, compared with a model that scans all entries, while entries change."""

from __future__ import annotations

import heapq
import json
import random
from dataclasses import dataclass

import pytest
from vectors.case import case

from railweave.switch.errors import DuplicateEntry
from railweave.switch.pipeline import Pipeline, Target, exact, lpm, range_, ternary

TOP = (1 << 24) - 1  # largest value of the range field
RESULT = 22 + 2  # where action r writes its parameter


@dataclass(frozen=True)
class Row:
    """An entry of the model."""

    low: int
    high: int
    value: int
    mask: int
    priority: int
    slot: int
    result: int

    def matches(self, pattern: int, number: int) -> bool:
        return pattern & self.mask == self.value and self.low <= number <= self.high


def load(size: int) -> Pipeline:
    root = json.loads(case("lookup").json.read_bytes())
    for table in root["pipelines"][0]["tables"]:
        table["max_size"] = size
    return Pipeline.load(json.dumps(root).encode())


def result(pipeline: Pipeline, pattern: int, number: int) -> int:
    key = ((pattern << 24 | 1) << 32) << 24 | number
    packet = ((key << 8 | 1) << 72).to_bytes(22, "big") + bytes(9)
    [(_, out)] = pipeline.inject(1, packet)
    return out[RESULT]


def draw(rng: random.Random, shape: str) -> tuple[int, int, int, int]:
    """Draw the low, high, value and mask of an entry."""
    if shape == "nested":
        step = rng.randrange(1 << 9)
        return step, (1 << 10) - step, 0, 0
    middle, width = rng.randrange(1 << 10), rng.choice((0, 1, 10, 100, TOP))
    mask = rng.choice((0, 0xFF00, 0x8000)) if shape == "ranges" else rng.randrange(1 << 16)
    return max(0, middle - width), min(TOP, middle + width), rng.randrange(1 << 16) & mask, mask


@pytest.mark.parametrize(("shape", "most"), [("ranges", 60), ("masks", 60), ("ranges", 500), ("nested", 500)])
def test_as_a_scan_finds_it(shape: str, most: int) -> None:
    rng = random.Random(f"{shape} {most}")
    pipeline, rows = load(most), dict[int, Row]()
    free = list(range(most))  # a heap: an entry takes the lowest free slot
    for step in range(4 * most):
        if rows and (len(rows) == most or rng.random() < 0.3):
            handle = rng.choice(list(rows))
            pipeline.tables["I.ranges"].delete(handle)
            heapq.heappush(free, rows.pop(handle).slot)
        else:
            low, high, value, mask = draw(rng, shape)
            priority, number = rng.randrange(1, 5), step % 255 + 1
            match = [range_(low, high), ternary(value, mask), lpm(0, 0), exact(1)]
            try:
                handle = pipeline.tables["I.ranges"].insert(match, Target("I.r", (number,)), priority)
            except DuplicateEntry:
                continue
            rows[handle] = Row(low, high, value, mask, priority, heapq.heappop(free), number)
        pattern, number = rng.randrange(1 << 16), rng.randrange(1 << 10)
        found = [row for row in rows.values() if row.matches(pattern, number)]
        best = max(found, key=lambda row: (row.priority, -row.slot), default=None)
        assert result(pipeline, pattern, number) == (0 if best is None else best.result)
