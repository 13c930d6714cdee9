# SPDX-License-Identifier: Apache-2.0
"""Surveys: small int32 MAX allreduces by which all ranks come to the same measurements.

A slice's time is that from the last start to the last end over the ranks: lateness is no rail's. Clocks
differ from host to host, so a rank counts both from the end of a survey before the call: surveys end on all
ranks at nearly the same time. As far as they do not, the time found still lies between the least and the
longest that the slice took on a rank. A rank that has no time yet gives a constant that wins: what one rank
lacks is unknown to all, and asked again by a later survey.

Of a block of calls, one after the other, the ranks agree on the mean time from one end to the next, where it
is the least. A lane holds it negated, so that the least wins.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from railweave.hosts.striping.table import CostKey

LANES = 64  # of every survey: 256 bytes, one packet on any rail
TICK_NS = 100  # unit of times
MOST = LANES // 2  # slices: each has a lane for its start, and one for its end
INTERRUPTED = 8  # calls of a block, of which the longest does not count: it waited for a processor
ABSENT = (1 << 31) - 1  # of a slice that this rank has no time of, or one more than 214 s after the survey
_PIECES = 4  # 16 bits each, of a digest

Lanes = NDArray[np.int32]
Times = tuple[int, int, int]  # start of the first slice in ns, end of the last one so far, bytes of all


@dataclass(frozen=True)
class Item:
    """One slice of one call, whose time the ranks are to agree on."""

    op_index: int
    rail: int
    key: CostKey
    rails: tuple[int, ...]  # of its class
    size: int  # bytes
    alone: bool  # whether it is the whole call
    survey: int  # index of the survey from whose end its times count
    generation: int  # of its class's split when the call was planned
    until: int = 0  # of a block: index of its last call; it begins with op_index
    way: tuple[int, ...] = ()  # of a block: the rails that took its calls in turn
    attempts: int = 0  # surveys that asked for it before, when no rank had it yet


def encode(items: Sequence[Item], times: Mapping[int, Mapping[int, Times]]) -> Lanes:
    """Return a survey's input from this rank's times by op index and rail."""
    lanes = np.full(LANES, ABSENT, np.int32)
    for place, item in enumerate(items):
        if item.until:
            lanes[2 * place] = _block_lane(item, times)
            continue
        start_ns, end_ns, done = times.get(item.op_index, {}).get(item.rail, (0, 0, 0))
        survey = times.get(item.survey)
        if done >= item.size and survey is not None:
            since_ns = max(end_ns for _, end_ns, _ in survey.values())
            ticks = [(time_ns - since_ns) // TICK_NS for time_ns in (start_ns, end_ns)]
            if all(-ABSENT <= tick < ABSENT for tick in ticks):
                lanes[2 * place : 2 * place + 2] = ticks
    return lanes


def decode(items: Sequence[Item], result: Sequence[int]) -> list[tuple[Item, float | None]]:
    """Return each item's time in seconds; None where a rank had none."""
    found: list[tuple[Item, float | None]] = []
    for item, start, end in zip(items, result[::2], result[1::2], strict=False):
        ticks = -start if item.until else end - start
        absent = start == ABSENT or (end == ABSENT and not item.until)
        found.append((item, None if absent else max(ticks, 1) * TICK_NS / 1e9))
    return found


def _block_lane(item: Item, times: Mapping[int, Mapping[int, Times]]) -> int:
    """Return the mean ticks from one end to the next of a block's calls, but the longest ones, negated."""
    ends_ns = sorted(
        end_ns
        for op_index in range(item.op_index, item.until + 1)
        for _, end_ns, _ in times.get(op_index, {}).values()
    )
    if len(ends_ns) != item.until + 1 - item.op_index:
        return ABSENT
    took_ns = sorted(end_ns - before_ns for before_ns, end_ns in pairwise(ends_ns))
    counted = len(took_ns) - len(took_ns) // INTERRUPTED
    return -min(sum(took_ns[:counted]) // (counted * TICK_NS), ABSENT - 1)


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
