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
class Choice:
    """The rails that carry a call, with the bytes of each, and the time that is predicted."""

    sizes: Mapping[int, float]  # bytes by rail, in order of rails
    time_s: float


def water_fill(lines: Mapping[int, Line], size: float) -> Choice:
    """Return how `size` bytes end soonest: sum over rails of b (T - a)+ = size, solved for T.

    Rails enter in order of their latency a; one whose latency is not below T gets nothing.
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
    return Choice({rail: lines[rail].rate * (time_s - lines[rail].a_s) for rail in sorted(entered)}, time_s)


def choose(
    singles: Mapping[int, float], lines: Mapping[int, Line], size: float, engaged: Set[int] = frozenset()
) -> Choice:
    """Return the rails for a call of `size` bytes: the quickest alone, and more while they pay.

    `singles` are the times of the whole call on each rail alone, `lines` the costs of parts. Rails are added
    one by one, the one that helps most first. Those `engaged` now are given up less readily.
    """
    best = min(singles, key=lambda rail: (singles[rail], rail))
    for rail in sorted(engaged & set(singles)):
        if len(engaged) == 1 and singles[rail] <= singles[best] * ENGAGE:
            best = rail
    choice = Choice({best: size}, singles[best])
    chosen = {best}
    while rest := sorted(set(lines) - chosen):
        offers = [
            (water_fill({rail: lines[rail] for rail in {*chosen, other}}, size), other) for other in rest
        ]
        offer, other = min(offers, key=lambda pair: (pair[0].time_s, pair[1]))
        wanted = STAY if other in engaged and len(engaged) > 1 else ENGAGE
        if choice.time_s < offer.time_s * wanted or other not in offer.sizes:
            break
        choice = offer
        chosen.add(other)
    return choice


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
