# SPDX-License-Identifier: Apache-2.0
"""How a tensor is cut into one contiguous part per rail."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from railweave._native.collectives import DType, ReduceOp
from railweave.hosts import capabilities
from railweave.hosts.arrays import NAMES
from railweave.hosts.decisions import Reason, Verdict
from railweave.hosts.errors import UnsupportedDType
from railweave.hosts.limits import limit_bps

ALIGNMENT = 256  # elements: parts begin where the chunks of an in-network rail do
SMALL_BYTES = 16 * 1024  # up to this size a second rail costs more than it carries
UNKNOWN_RATE_BPS = 10**9  # what links are taken for if the rate of one is not known

Part = tuple[int, int, int]  # rail's index in the agent, offset, count; in elements

USED = Verdict(None)
NO_SHARE = Verdict(Reason.SHARE_ZERO, "its share is 0")
SMALL = Verdict(Reason.THRESHOLD, f"up to {SMALL_BYTES} bytes ride one rail, whose latency counts")
ROUNDED = Verdict(Reason.THRESHOLD, f"its share of so small a tensor is less than {ALIGNMENT} elements")


@dataclass(frozen=True)
class StripedRail:
    """A rail as the striper sees it."""

    name: str
    index: int  # in the agent
    kind: str
    share: float  # of large tensors


@dataclass(frozen=True)
class Split:
    """How one kind of call is cut, and why."""

    parts: tuple[Part, ...]
    verdicts: Mapping[str, Verdict]  # by rail


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
    """Cuts by shares that do not change. Small tensors ride one rail: the switch's where there is one.

    A rail that cannot reduce a type or do an operation gets nothing of such a call; the others carry it all.
    """

    def __init__(self, rails: Sequence[StripedRail]) -> None:
        """Take the rails in the agent's order."""
        self._rails = tuple(rails)

    def split(self, dtype: DType, op: ReduceOp, count: int, item_size: int) -> Split:
        """Cut `count` elements, at least one, of `item_size` bytes. UnsupportedDType if no rail can."""
        verdicts = {rail.name: self._barred(rail, dtype, op) for rail in self._rails}
        able = [rail for rail in self._rails if verdicts[rail.name] is None]
        if not able:
            raise UnsupportedDType(self._unsupported(dtype, op))
        if count * item_size <= SMALL_BYTES:
            quick = min(able, key=lambda rail: (rail.kind != "ina", -rail.share))
            parts: list[Part] = [(quick.index, 0, count)]
        else:
            parts = _cut(able, count)
        used = {index for index, _, _ in parts}
        spared = SMALL if count * item_size <= SMALL_BYTES else ROUNDED
        return Split(
            tuple(parts),
            {
                rail.name: verdicts[rail.name] or (USED if rail.index in used else spared)
                for rail in self._rails
            },
        )

    def _barred(self, rail: StripedRail, dtype: DType, op: ReduceOp) -> Verdict | None:
        """Return why a rail takes no part in such calls of any size; None if it does."""
        reason = capabilities.obstacle(rail.kind, dtype, op)
        if reason is not None:
            return Verdict(reason, capabilities.limits(rail.kind))
        return None if rail.share > 0 else NO_SHARE

    def _unsupported(self, dtype: DType, op: ReduceOp) -> str:
        rails = "; ".join(
            f"{rail.name}: {verdict.text}"
            for rail in self._rails
            if (verdict := self._barred(rail, dtype, op)) is not None
        )
        idle = [rail.name for rail in self._rails if capabilities.obstacle(rail.kind, dtype, op) is None]
        advice = f"give rail {idle[0]} a share" if idle else "add a tcp or rdma rail"
        return f"no rail can {capabilities.OP_NAMES[op]} {NAMES[dtype]} ({rails}): {advice}"


def _cut(rails: Sequence[StripedRail], count: int) -> list[Part]:
    total = sum(rail.share for rail in rails)
    parts: list[Part] = []
    begin, carried = 0, 0.0
    for rail in rails:
        carried += rail.share
        last = rail is rails[-1]
        end = count if last else min(count, round(count * carried / total / ALIGNMENT) * ALIGNMENT)
        if end > begin:
            parts.append((rail.index, begin, end - begin))
            begin = end
    return parts
