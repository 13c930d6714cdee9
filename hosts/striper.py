# SPDX-License-Identifier: Apache-2.0
"""How a tensor is cut into one contiguous part per rail."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from railweave.hosts.limits import limit_bps

ALIGNMENT = 256  # elements: parts begin where the chunks of an in-network rail do
SMALL_BYTES = 16 * 1024  # up to this size a second rail costs more than it carries
UNKNOWN_RATE_BPS = 10**9  # what links are taken for if the rate of one is not known

Part = tuple[int, int, int]  # rail's index in the agent, offset, count; in elements


@dataclass(frozen=True)
class StripedRail:
    """A rail as the striper sees it."""

    index: int  # in the agent
    kind: str
    share: float  # of large tensors


def default_shares(rails: Mapping[str, tuple[str, int]], hosts: int) -> dict[str, float]:
    """Return shares in proportion to the limits of rails given as name: (kind, rate_bps)."""
    known = all(rate_bps > 0 for _, rate_bps in rails.values())
    limits = {
        name: limit_bps(kind, rate_bps if known else UNKNOWN_RATE_BPS, hosts)
        for name, (kind, rate_bps) in rails.items()
    }
    return normalised(limits)


def normalised(shares: Mapping[str, float]) -> dict[str, float]:
    """Return the same shares with sum 1."""
    total = sum(shares.values())
    return {name: share / total for name, share in shares.items()}


class FixedStriper:
    """Cuts by shares that do not change. Small tensors ride one rail: the switch's where there is one."""

    def __init__(self, rails: Sequence[StripedRail]) -> None:
        """Take the rails in the agent's order; those without a share carry nothing."""
        self._rails = [rail for rail in rails if rail.share > 0]
        self._quick = min(self._rails, key=lambda rail: (rail.kind != "ina", -rail.share))

    def parts(self, count: int, item_size: int) -> list[Part]:
        """Cut `count` elements, at least one, of `item_size` bytes."""
        if count * item_size <= SMALL_BYTES:
            return [(self._quick.index, 0, count)]
        total = sum(rail.share for rail in self._rails)
        parts: list[Part] = []
        begin, carried = 0, 0.0
        for rail in self._rails:
            carried += rail.share
            last = rail is self._rails[-1]
            end = count if last else min(count, round(count * carried / total / ALIGNMENT) * ALIGNMENT)
            if end > begin:
                parts.append((rail.index, begin, end - begin))
                begin = end
        return parts
