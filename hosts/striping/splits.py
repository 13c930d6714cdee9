# SPDX-License-Identifier: Apache-2.0
"""How to cut a tensor: so that all rails end at once, or by shares that somebody has given."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import fsum

from railweave.hosts.striping.priors import Line, StripedRail

ALIGNMENT = 256  # elements: parts begin where the chunks of an in-network rail do
ENGAGE = 1.05  # a further rail, or another one, must make a call quicker by this factor

Part = tuple[int, int, int]  # rail's index in the agent, offset, count; in elements
# Rails that share a call, the one that takes it all, or TURNS and those that take turns.
Way = tuple[int, ...]
TURNS = -1


@dataclass(frozen=True)
class Split:
    """How a call is cut, and the time that is predicted."""

    parts: tuple[Part, ...]
    time_s: float
    turns: tuple[int, ...] = ()  # rails of which each takes a whole call in turn

    @property
    def rails(self) -> Way:
        """Return the rails that carry a part."""
        return tuple(rail for rail, _, _ in self.parts)

    @property
    def ways(self) -> tuple[tuple[Part, ...], ...]:
        """Return the parts that calls take, one after the other."""
        return tuple(((rail, *self.parts[0][1:]),) for rail in self.turns) or (self.parts,)


def water_fill(lines: Mapping[int, Line], size: float) -> dict[int, float]:
    """Return the bytes of each rail with which `size` bytes end soonest, in order of rails.

    That is where sum over rails of b (T - a)+ = size, solved for T: rails enter in order of their latency a,
    and one whose latency is not below T gets nothing.
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
    """Return how to cut a call of `count` elements, `size` bytes, so that all of these rails end at once."""
    parts = cut(water_fill(lines, size), count)
    return Split(parts, time_of(parts, lines, size // count))


def best_split(lines: Mapping[int, Line], size: int, count: int, engaged: Collection[int] = ()) -> Split:
    """Return the best split of a call of `count` elements, `size` bytes; one part if it cannot be cut.

    Each rail must pay; those `engaged` now are kept while they do not make calls slower.
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
    """Return the quickest of rails that carry a call alone, with these times, and a split.

    Those `engaged` now are kept as long as nothing else is clearly quicker.
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
    """Return the time that a split is predicted to take: that of its slowest part."""
    return max(lines[rail].time_s(count * element_bytes) for rail, _, count in parts)


def fixed_split(rails: Sequence[StripedRail], count: int) -> tuple[Part, ...]:
    """Cut `count` elements among rails that can carry them, by their shares.

    Tensors of fewer than ALIGNMENT elements for each ride one: the switch's where there is one. If only rails
    without a share are left, one carries all.
    """
    having = [rail for rail in rails if rail.share > 0]
    if having and count >= len(having) * ALIGNMENT:
        return cut({rail.index: rail.share for rail in having}, count)
    quick = min(having or rails, key=lambda rail: (rail.kind != "ina", -rail.share, rail.index))
    return ((quick.index, 0, count),)
