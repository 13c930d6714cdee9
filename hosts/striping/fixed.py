# SPDX-License-Identifier: Apache-2.0
"""Splits by shares that somebody has given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from railweave.hosts.decisions import Reason, Verdict
from railweave.hosts.limits import limit_bps
from railweave.hosts.striping.filling import ALIGNMENT, Part, cut
from railweave.hosts.striping.plan import NO_SHARE
from railweave.hosts.striping.priors import UNKNOWN_RATE_BPS, StripedRail

SMALL_BYTES = 16 * 1024  # up to this size a second rail costs more than it carries

SMALL = Verdict(Reason.THRESHOLD, f"up to {SMALL_BYTES} bytes ride one rail, whose latency counts")
ROUNDED = Verdict(Reason.THRESHOLD, f"its share of so small a tensor is less than {ALIGNMENT} elements")


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


def fixed_split(
    rails: Sequence[StripedRail], count: int, element_bytes: int
) -> tuple[tuple[Part, ...], dict[str, Verdict]]:
    """Cut `count` elements among rails that can carry them, by their shares; say why the others get nothing.

    Small tensors ride one rail: the switch's where there is one. If only rails without a share are left, they
    carry all.
    """
    having = [rail for rail in rails if rail.share > 0]
    small = count * element_bytes <= SMALL_BYTES
    if small or not having:
        quick = min(having or rails, key=lambda rail: (rail.kind != "ina", -rail.share, rail.index))
        parts: tuple[Part, ...] = ((quick.index, 0, count),)
    else:
        parts = cut({rail.index: rail.share for rail in having}, count)
    used = {index for index, _, _ in parts}
    spared = SMALL if small else ROUNDED
    return parts, {
        rail.name: Verdict(None, rail.where) if rail.index in used else spared if rail.share > 0 else NO_SHARE
        for rail in rails
    }
