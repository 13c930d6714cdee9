# SPDX-License-Identifier: Apache-2.0
"""The plan of one call: how it is split, how long it should take, and whether a survey follows it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from railweave._native.agent import Call
from railweave._native.collectives import Collective
from railweave._native.ina import spreads
from railweave._native.spread import LEAST_CHUNKS
from railweave.hosts.capabilities import REDUCING
from railweave.hosts.decisions import Reason, Tally, Verdict

if TYPE_CHECKING:
    from railweave._native.collectives import DType
    from railweave.hosts.striping.classes import CallClass
    from railweave.hosts.striping.filling import Part, Split
    from railweave.hosts.striping.priors import StripedRail
    from railweave.hosts.striping.surveys import Item

USED = Verdict(None)
MULTICAST = Verdict(None, "multicast")
FEW_CHUNKS = Verdict(None, f"not multicast: fewer than {LEAST_CHUNKS} chunks")
NO_GAIN = Verdict(Reason.THRESHOLD, "it would not make calls of this size quicker by 5 %")
TURN = Verdict(Reason.THRESHOLD, "calls of this size take it and others in turn, which is quicker")
TRYING = Verdict(Reason.PROBING, "another way was tried, to learn what it costs")
DOWN = Verdict(Reason.RAIL_DOWN, "the rail has failed; the others carry its part until it is back")
NO_SHARE = Verdict(Reason.SHARE_ZERO, "its share is 0")

PIECE_S = 0.1  # a part that takes at least twice as long is cut into pieces of about this length
MOST_PIECES = 64  # of one part


@dataclass(frozen=True)
class Measurement:
    """What is to be measured of a call."""

    call_class: CallClass
    size: int  # bytes of the whole tensor
    count: int  # elements that are cut
    usual: Split  # what calls of this size take when nothing is tried
    tried: bool  # whether this one takes another way


@dataclass(frozen=True)
class Plan:
    """How one call goes. Plans of equal calls are the same object while nothing is learnt."""

    call: Call
    parts: tuple[Part, ...]
    tally: Tally
    expected_s: float = 0.0  # 0: nothing is known
    survey_after: bool = False
    quiet: CallClass | None = None  # the class that counts this call, which is not measured
    measurement: Measurement | None = None
    survey: tuple[Item, ...] | None = None  # what a survey asks for
    sequence: tuple[Part, ...] = ()  # the parts, each cut into some that its rail does one after the other

    def in_sequence(self) -> Plan:
        """Return this plan with long parts cut: a rail that comes back can take what is left of them."""
        pieces = min(MOST_PIECES, int(self.expected_s / PIECE_S))
        if pieces < 2:
            return self
        cut = (
            (rail, begin, end - begin)
            for rail, first, count in self.parts
            for begin, end in pairwise(first + count * number // pieces for number in range(pieces + 1))
            if end > begin
        )
        return replace(self, sequence=tuple(cut))


def use(rail: StripedRail, collective: Collective, dtype: DType, count: int, hosts: int) -> Verdict:
    """Return how a rail carries `count` elements (of a shard, where there are shards)."""
    if rail.members:
        reduces = collective is Collective.ALL_REDUCE
        return Verdict(None, f"a ring of {rail.members} racks and ranks" if reduces else "by the hosts")
    if rail.adds and collective is Collective.ALL_REDUCE:
        return Verdict(None, f"sums and means by the switch, the rest by the hosts; {rail.where}")
    if rail.kind != "ina" or collective in REDUCING:
        return Verdict(None, rail.where)
    return MULTICAST if spreads(collective, dtype, count, hosts, rail.lanes, rail.trees) else FEW_CHUNKS
