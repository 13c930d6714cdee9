# SPDX-License-Identifier: Apache-2.0
"""Surveys: small int32 MAX allreduces by which all ranks come to the same measurements.

A lane holds a slice's time, subtracted from a constant. The greatest over the ranks is then the least time:
that of the rank that came last, which waited for nobody. A rank that has no time yet gives the constant
itself: what one rank lacks is unknown to all, and asked again by a later survey.

Of short calls the longest time counts, and lanes hold times as they are. There the rank that comes last
finds all it needs of a ring or of recursive doubling waiting, but not of a switch, which must still answer:
its time would say that the former take none. In the longest time, lateness is the same whatever the rail.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from railweave.hosts.striping.table import CostKey

LANES = 64  # of every survey: 256 bytes, one packet on any rail
TICK_NS = 100  # unit of times
ABSENT = (1 << 31) - 1  # of a slice that this rank has no time of
LONGEST = ABSENT - 1  # ticks: 214 s, more than which counts as that
_PIECES = 4  # 16 bits each, of a digest

Lanes = NDArray[np.int32]


@dataclass(frozen=True)
class Item:
    """One slice of one call, whose time the ranks are to agree on."""

    op_index: int
    rail: int
    key: CostKey
    rails: tuple[int, ...]  # of its class
    size: int  # bytes
    parts: int  # of the call; 1: this is the whole of it
    longest: bool  # whether the longest time over the ranks counts, not the least
    generation: int  # of its class's split when the call was planned
    attempts: int = 0  # surveys that asked for it before, when no rank had it yet

    @property
    def alone(self) -> bool:
        """Whether it was the whole call."""
        return self.parts == 1


def encode(items: Sequence[Item], times_ns: Mapping[tuple[int, int], int]) -> Lanes:
    """Return a survey's input from this rank's times by (op index, rail)."""
    lanes = np.full(LANES, ABSENT, np.int32)
    for place, item in enumerate(items):
        time_ns = times_ns.get((item.op_index, item.rail))
        if time_ns is not None:
            ticks = min(max(time_ns // TICK_NS, 1), LONGEST)
            lanes[place] = ticks if item.longest else ABSENT - ticks
    return lanes


def decode(items: Sequence[Item], result: Sequence[int]) -> list[tuple[Item, float | None]]:
    """Return each item's time in seconds, the least or longest over the ranks; None where a rank had none."""
    return [
        (item, None if lane == ABSENT else (lane if item.longest else ABSENT - lane) * TICK_NS / 1e9)
        for item, lane in zip(items, result, strict=False)
    ]


def opening(options: str, costs: str) -> Lanes:
    """Return the input of the first survey, which shows whether all ranks start from the same."""
    lanes = np.zeros(LANES, np.int32)
    pieces = [*_pieces(options), *_pieces(costs)]
    lanes[: len(pieces)] = pieces
    lanes[len(pieces) : 2 * len(pieces)] = [0xFFFF - piece for piece in pieces]
    return lanes


def agreed(result: Sequence[int]) -> tuple[bool, bool]:
    """Return whether all ranks have the same options, and the same costs, by the first survey's result."""
    same = [
        greatest + greatest_left == 0xFFFF
        for greatest, greatest_left in zip(result[: 2 * _PIECES], result[2 * _PIECES :], strict=False)
    ]
    return all(same[:_PIECES]), all(same[_PIECES : 2 * _PIECES])


def _pieces(text: str) -> list[int]:
    digest = hashlib.sha256(text.encode()).digest()
    return [int.from_bytes(digest[2 * place : 2 * place + 2], "big") for place in range(_PIECES)]
