# SPDX-License-Identifier: Apache-2.0
"""How to cut a tensor so that all rails end at once, and which rails to take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from railweave.hosts.striping.costs import Line

ALIGNMENT = 256  # elements: parts begin where the chunks of an in-network rail do
ENGAGE = 1.05  # a further rail must make a call quicker by this factor
STAY = 1.02  # and one that is engaged is kept while it makes it quicker by this one
MOVE = 1.01  # a split is changed when another is predicted to be quicker by this factor

Part = tuple[int, int, int]  # rail's index in the agent, offset, count; in elements


@dataclass(frozen=True)
class Split:
    """How a call is cut, and the time that is predicted."""

    parts: tuple[Part, ...]
    time_s: float
    turns: tuple[int, ...] = ()  # rails of which each takes a whole call in turn

    @property
    def ways(self) -> tuple[tuple[Part, ...], ...]:
        """Return the parts that calls take, one after the other."""
        if not self.turns:
            return (self.parts,)
        ((_, first, count),) = self.parts
        return tuple(((rail, first, count),) for rail in self.turns)


def water_fill(lines: Mapping[int, Line], size: float) -> dict[int, float]:
    """Return the bytes of each rail with which `size` bytes end soonest, in order of rails.

    That is where sum over rails of b (T - a)+ = size, solved for T: rails enter in order of their latency a,
    and one whose latency is not below T gets nothing.
    """
    order = sorted(lines, key=lambda rail: (lines[rail].a_s, rail))
    rates = weighted = 0.0
    entered: list[int] = []
    time_s = 0.0
    for rail in order:
        line = lines[rail]
        if entered and line.a_s >= time_s:
            break
        entered.append(rail)
        rates = rates + line.rate
        weighted = weighted + line.rate * line.a_s
        time_s = (size + weighted) / rates
    return {rail: lines[rail].rate * (time_s - lines[rail].a_s) for rail in sorted(entered)}


def choose(
    singles: Mapping[int, float],
    lines: Mapping[int, Line],
    size: int,
    count: int,
    engaged: Set[int] = frozenset(),
) -> Split:
    """Return how to cut a call of `count` elements, `size` bytes: the quickest rail, and more while they pay.

    `singles` are the times of the whole call on each rail alone, `lines` the costs of parts on rails that may
    share it. Rails are added one by one, the one that helps most first. Those `engaged` now are given up less
    readily.
    """
    best = min(singles, key=lambda rail: (singles[rail], rail))
    (now,) = engaged if len(engaged) == 1 else (best,)
    if now in singles and singles[now] <= singles[best] * ENGAGE:
        best = now
    split = Split(((best, 0, count),), singles[best])
    chosen = {best}
    while rest := sorted(set(lines) - chosen):
        offers = []
        for other in rest:
            parts = cut(water_fill({rail: lines[rail] for rail in (*chosen, other)}, size), count)
            if len(parts) > 1 and any(rail == other for rail, _, _ in parts):
                offers.append((time_of(parts, lines, size // count), other, parts))
        if not offers:
            break
        time_s, other, parts = min(offers)
        if split.time_s < time_s * (STAY if len(engaged) > 1 and other in engaged else ENGAGE):
            break
        split = Split(parts, time_s)
        chosen.add(other)
    return split


def cut(sizes: Mapping[int, float], count: int) -> tuple[Part, ...]:
    """Cut `count` elements in proportion to `sizes`, at multiples of ALIGNMENT; the last part takes the rest.

    >>> cut({0: 1.0, 1: 1.0}, 1000)
    ((0, 0, 512), (1, 512, 488))
    """
    total = 0.0
    for size in sizes.values():
        total = total + size
    parts: list[Part] = []
    begin, carried = 0, 0.0
    last = list(sizes)[-1]
    for rail, size in sizes.items():
        carried = carried + size
        end = (
            count if rail == last else min(count, int(count * carried / total / ALIGNMENT + 0.5) * ALIGNMENT)
        )
        if end > begin:
            parts.append((rail, begin, end - begin))
            begin = end
    return tuple(parts)


def time_of(parts: Sequence[Part], lines: Mapping[int, Line], element_bytes: int) -> float:
    """Return the time that a split is predicted to take: that of its slowest part."""
    return max(lines[rail].time_s(count * element_bytes) for rail, _, count in parts)
