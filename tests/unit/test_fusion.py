# SPDX-License-Identifier: Apache-2.0
"""Fusion of lanes of 8, 16, 32 and 64 bits: the results are those of Python and of the unfused program."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest
from compressed import unpacked

from railweave.switch import compiler
from railweave.switch.lowering import lower
from railweave.switch.pipeline import Pipeline

PROGRAMS = Path(__file__).parents[1] / "fusion"
LANES = 8
KEEP, SIGNED = 13, 14


def program(width: int) -> bytes:
    return unpacked(PROGRAMS / f"widths{width}.json").read_bytes()


def operations(width: int) -> dict[int, Callable[[int, int], int]]:
    """Return the operations on a packet's lane and the register, by their number; all unsigned."""
    top, half = (1 << width) - 1, 1 << (width - 1)

    def signed(x: int) -> int:
        return (x ^ half) - half

    def clamp(x: int) -> int:
        return max(-half, min(half - 1, x))

    return {
        0: lambda v, held: v,
        1: lambda v, held: v + held,
        2: lambda v, held: v - held,
        3: lambda v, held: v * held,
        4: lambda v, held: min(v + held, top),
        5: lambda v, held: max(v - held, 0),
        6: lambda v, held: clamp(signed(v) + signed(held)),
        7: lambda v, held: clamp(signed(v) - signed(held)),
        8: lambda v, held: max(signed(v), signed(held)),
        9: min,
        10: lambda v, held: (held ^ (v << 3)) & ~(v >> 2),
        11: lambda v, held: (signed(v) >> 1) | (held & 1),
        12: lambda v, held: (v + held) >> 1,
    }


class Switch:
    """A model of the program that works lane by lane."""

    def __init__(self, width: int) -> None:
        self.width, self.top, self.half = width, (1 << width) - 1, 1 << (width - 1)
        self.operations = operations(width)
        self.registers = [[0] * LANES for _ in range(64)]

    def signed(self, x: int) -> int:
        x &= self.top
        return (x ^ self.half) - self.half

    def run(self, op: int, slot: int, lanes: list[int], ints: list[int]) -> tuple[list[int], list[int]]:
        """Return the lanes and the signed fields of the packet as they leave."""
        held = self.registers[slot] if slot < 64 else [0] * LANES
        if op in self.operations:
            lanes = [self.operations[op](v, h) & self.top for v, h in zip(lanes, held, strict=True)]
            if slot < 64:
                self.registers[slot] = lanes
        elif op == SIGNED:
            sums = [self.signed(i) + self.signed(v) for i, v in zip(ints, lanes, strict=True)]
            ints = [max(-self.half, min(self.half - 1, x)) & self.top for x in sums]
        elif op == KEEP:
            kept = [self.signed(v - h) for v, h in zip(lanes, held, strict=True)]
            lanes = [int(k < k >> 1) for k in kept]
            ints = [(k >> 1) & self.top for k in kept]
        return lanes, ints


def lane(rng: random.Random, width: int) -> int:
    top, half = (1 << width) - 1, 1 << (width - 1)
    return rng.choice((0, 1, top, half, half - 1, rng.getrandbits(width), rng.getrandbits(width)))


def packed(width: int, op: int, slot: int, lanes: list[int], ints: list[int]) -> bytes:
    words = b"".join(value.to_bytes(width // 8, "big") for value in (*lanes, *ints))
    return bytes([op]) + slot.to_bytes(2, "big") + words + b"payload"


@pytest.mark.parametrize(
    ("way", "width"),
    [*product(("interpreted", "unfused"), (8, 16, 32, 64)), ("compiled", 8), ("compiled", 64)],
)
def test_lanes_of_every_width(width: int, way: str) -> None:
    """The plan of a trace is unfused. Slots of 64 and more are outside of the registers."""
    pipeline = Pipeline.load(program(width))
    if way == "compiled":
        compiler.compiled(pipeline.native)
    if way == "unfused":
        pipeline.traces.start(None, 1024)
    rng, expected = random.Random(width), Switch(width)
    for number in range(600):
        op, slot = rng.randrange(15), rng.choice((0, 1, 63, 64, 65535))
        lanes, ints = ([lane(rng, width) for _ in range(LANES)] for _ in range(2))
        if slot >= 64 and op != SIGNED:
            op = 0  # a read of no register leaves a variable as it is, and that has no value yet
        out = packed(width, op, slot, *expected.run(op, slot, lanes, ints))
        assert pipeline.inject(1, packed(width, op, slot, lanes, ints)) == [(1, out)], f"packet {number}"


@pytest.mark.parametrize("width", [8, 16, 32, 64])
def test_every_action_is_fused_or_says_why(width: int) -> None:
    fusions = {fusion.action: fusion for fusion in lower(program(width))[0].fusions}
    assert len(fusions) == 16
    for name, fusion in fusions.items():
        wide = width == 64 and name == "I.mean"  # sums of 65 bits
        assert {length for _, length in fusion.vectors} == (set() if wide else {LANES}), name
        assert [line.split(":")[0] for line in fusion.scalar] == (
            ["8 values from l.v0 on", "8 values from I.r0 on"] if wide else []
        ), name
