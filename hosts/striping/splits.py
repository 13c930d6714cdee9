# SPDX-License-Identifier: Apache-2.0
"""Cut a tensor so that all rails end at the same time, or by given shares."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import fsum

from railweave.hosts.striping.priors import Line, StripedRail

ALIGNMENT = 256  # elements: parts begin at chunk boundaries of an in-network rail
ENGAGE = 1.05  # an added rail, or another arm, must make a call faster by this factor

Part = tuple[int, int, int]  # rail's index in the agent, offset, count; in elements
# An arm: the rails that share a call, one rail alone, or TURNS and the rails that alternate.
Way = tuple[int, ...]
TURNS = -1


@dataclass(frozen=True)
class Split:
    """Parts of a call, and the predicted time."""

    parts: tuple[Part, ...]
    time_s: float
    turns: tuple[int, ...] = ()  # rails that alternate: each takes a whole call

    @property
    def rails(self) -> Way:
        """Return the rails that carry a part."""
        return tuple(rail for rail, _, _ in self.parts)

    @property
    def ways(self) -> tuple[tuple[Part, ...], ...]:
        """Return the parts of successive calls: one entry per alternating rail, else one entry."""
        return tuple(((rail, *self.parts[0][1:]),) for rail in self.turns) or (self.parts,)


def water_fill(lines: Mapping[int, Line], size: float) -> dict[int, float]:
    """Return the bytes of each rail so that `size` bytes end as early as possible, in order of rails.

    Solves sum over rails of b (T - a)+ = size for T. Rails enter in order of their latency a. A rail gets
    nothing if its latency is not below T.
    """
    rates = weighted = time_s = 0.0
    entered: list[int] = []
    for rail in sorted(lines, key=lambda rail: (lines[rail].a_s, rail)):
        line = lines[rail]
        if entered and line.a_s >= time_s:
            break
        entered.append(rail)
        rates = rates + line.rate
        weighted = weighted + line.rate * line.a_s
        time_s = (size + weighted) / rates
    return {rail: lines[rail].rate * (time_s - lines[rail].a_s) for rail in sorted(entered)}


def balanced(lines: Mapping[int, Line], size: int, count: int) -> Split:
    """Return the split of `count` elements, `size` bytes, for which all rails end at the same time."""
    parts = cut(water_fill(lines, size), count)
    return Split(parts, time_of(parts, lines, size // count))


def best_split(lines: Mapping[int, Line], size: int, count: int, engaged: Collection[int] = ()) -> Split:
    """Return the best split of `count` elements, `size` bytes; one part if the call cannot be cut.

    A new rail must make calls faster by ENGAGE. An `engaged` rail stays while it makes calls no slower.
    """
    split = balanced(lines, size, count)
    while len(split.parts) > 2:
        fewer = [
            (without.time_s / (1.0 if rail in engaged else ENGAGE), rail, without)
            for rail in split.rails
            for without in [balanced({of: lines[of] for of in split.rails if of != rail}, size, count)]
        ]
        time_s, _, without = min(fewer, key=lambda each: each[:2])
        if time_s > split.time_s:
            break
        split = without
    return split


def choose(singles: Mapping[int, float], split: Split, count: int, engaged: Collection[int] = ()) -> Split:
    """Return the fastest choice among single rails, with these times, and a split.

    The `engaged` rails stay until another choice is faster by ENGAGE.
    """
    best = min(singles, key=lambda rail: (singles[rail], rail))
    if len(engaged) == 1 and singles.get(now := min(engaged), 2 * singles[best]) <= singles[best] * ENGAGE:
        best = now
    if len(split.parts) > 1 and split.time_s * (1.0 if len(engaged) > 1 else ENGAGE) < singles[best]:
        return split
    return Split(((best, 0, count),), singles[best])


def cut(sizes: Mapping[int, float], count: int) -> tuple[Part, ...]:
    """Cut `count` elements in proportion to `sizes`, at multiples of ALIGNMENT; the last part takes the rest.

    >>> cut({0: 1.0, 1: 1.0}, 1000)
    ((0, 0, 512), (1, 512, 488))
    """
    total = fsum(sizes.values())
    parts: list[Part] = []
    begin, carried = 0, 0.0
    for place, (rail, size) in enumerate(sizes.items(), 1):
        carried = carried + size
        end = min(count, int(count * carried / total / ALIGNMENT + 0.5) * ALIGNMENT)
        end = count if place == len(sizes) else end
        if end > begin:
            parts.append((rail, begin, end - begin))
            begin = end
    return tuple(parts)


def time_of(parts: Sequence[Part], lines: Mapping[int, Line], element_bytes: int) -> float:
    """Return the predicted time of a split: the time of its slowest part."""
    return max(lines[rail].time_s(count * element_bytes) for rail, _, count in parts)


def fixed_split(rails: Sequence[StripedRail], count: int) -> tuple[Part, ...]:
    """Cut `count` elements among rails that can carry them, by their shares.

    A tensor of fewer than ALIGNMENT elements per rail uses one rail, an ina rail if possible. One rail also
    carries the whole tensor if no rail has a share.
    """
    having = [rail for rail in rails if rail.share > 0]
    if having and count >= len(having) * ALIGNMENT:
        return cut({rail.index: rail.share for rail in having}, count)
    quick = min(having or rails, key=lambda rail: (rail.kind != "ina", -rail.share, rail.index))
    return ((quick.index, 0, count),)
