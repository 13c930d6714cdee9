# SPDX-License-Identifier: Apache-2.0
"""Predicts how a call of some size goes: what each rail would take, what splits would take, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from railweave._native.collectives import Called, Collective, DType, ReduceOp, item_size
from railweave.hosts import capabilities
from railweave.hosts.arrays import NAMES
from railweave.hosts.errors import InvalidOption
from railweave.hosts.striping.classes import CallClass
from railweave.hosts.striping.costs import CostKey
from railweave.hosts.striping.planner import Planner, RailState, cost_key
from railweave.hosts.striping.priors import StripedRail
from railweave.hosts.striping.splits import ALIGNMENT, ENGAGE, Part, Split, balanced, time_of

T = TypeVar("T")

MOST_BYTES = 1 << 62


@dataclass(frozen=True)
class RailPrediction:
    """What one rail costs in calls of this kind: microseconds, and bits of the tensor per second."""

    rail: str
    kind: str
    state: str  # up, down or recovering
    obstacle: str  # why it takes no part, if it cannot
    alone_us: float | None  # the whole call on this rail; none if it cannot carry it
    a_us: float
    b_bps: float
    samples: int  # measurements that speak for its present speed
    source: str  # measured, or what else the cost follows from
    how: str = ""  # multicast or not, where that is a question


@dataclass(frozen=True)
class SplitPrediction:
    """One way to cut the call."""

    shares: Mapping[str, float]  # by rail; those that carry something
    time_us: float  # predicted
    gain: float  # by how much it is quicker than the best rail alone: 0.05 for 5 %
    chosen: bool  # several are where calls take turns


@dataclass(frozen=True)
class Prediction:
    """How a call would go now, and why; prints as a table."""

    collective: str
    dtype: str
    op: str  # empty for a collective that has none
    size_bytes: int  # of the whole tensor
    hosts: int
    state: str  # of the class of calls: cold … hot; fixed or deterministic where nothing is learnt
    rails: tuple[RailPrediction, ...]
    splits: tuple[SplitPrediction, ...]
    why: str
    note: str = ""  # what else is to be known of the costs

    def __str__(self) -> str:
        """Return the table."""
        what = " ".join(filter(None, (self.collective, self.op, self.dtype)))
        lines = [f"{what}, {self.size_bytes} bytes, {self.hosts} hosts: {self.state}"]
        titles = ("rail", "kind", "state", "alone (us)", "a (us)", "b (Mbit/s)", "samples", "cost")
        lines += columns(titles, [_rail_row(rail) for rail in self.rails])
        rows = [
            ("->" * split.chosen, shares_text(split.shares), f"{split.time_us:.1f}", _percent(split.gain))
            for split in self.splits
        ]
        lines += columns(("", "split", "time (us)", "gain"), rows)
        return "\n".join([*lines, self.why, *filter(None, [self.note])])


def predict(
    planner: Planner, size_bytes: int, collective: str = "all_reduce", dtype: str = "float32", op: str = "sum"
) -> Prediction:
    """Return how a call of `size_bytes` (of the whole tensor) would go now, and why.

    InvalidOption for an unknown collective, dtype or op, and a size that holds no element.
    Any thread may ask.
    """
    which = _named({name: each for each, name in capabilities.COLLECTIVE_NAMES.items()}, collective)
    kind = _named({name: each for each, name in NAMES.items()}, dtype, "dtype")
    operation = _named(capabilities.OPS, op, "op")
    unit = capabilities.size_bytes(which, 1, item_size(kind), planner.world_size)
    whole = isinstance(size_bytes, int) and not isinstance(size_bytes, bool)
    if not whole or not unit <= size_bytes < MOST_BYTES:
        least = f"at least {unit}, the least tensor of {collective} {dtype}, and less than 2^62"
        raise InvalidOption(f"size_bytes is {size_bytes!r}", least, "correct size_bytes")
    with planner.lock:
        return _Question(planner, which, kind, operation, size_bytes // unit).answer()


def shares(planner: Planner) -> dict[str, float]:
    """Return the shares of large allreduces now, by rail. Any thread may ask."""
    if planner.fixed:
        return {rail.name: rail.share for rail in planner.rails}
    with planner.lock:
        alive = [rail.index for rail in planner.rails if rail.index not in planner.reasons]
        key = CostKey("all_reduce", "float", 64 << 20)
        split = CallClass(key, alive, planner.table).choose(key.size_class, key.size_class)
    carried = {rail: part for rail, _, part in split.parts}
    return {rail.name: carried.get(rail.index, 0) / key.size_class for rail in planner.rails}


class _Question:
    """One question to a planner."""

    def __init__(
        self, planner: Planner, collective: Collective, dtype: DType, op: ReduceOp, count: int
    ) -> None:
        self._planner, self._table = planner, planner.table
        self._call = (collective, dtype, op)
        self._count = count
        self._size = capabilities.size_bytes(collective, count, item_size(dtype), planner.world_size)
        self._key = cost_key(collective, dtype, self._size)
        self._able = [rail for rail in planner.rails if not self._obstacle(rail)]

    def answer(self) -> Prediction:
        collective, dtype, op = self._call
        splits: tuple[SplitPrediction, ...] = ()
        stage = "nothing to learn"
        if self._able:
            call = (collective, dtype, op, 0, Called.AS_CARRIED, self._count)
            split, call_class = self._planner.in_force(call)
            splits = self._splits(split)
            stage = call_class.stage if len(self._able) > 1 else stage
        if not self._planner.learning:
            stage = "fixed shares" if self._planner.fixed else "deterministic"
        cold = "; the first calls of this size try each rail, and what they take decides"
        return Prediction(
            collective=capabilities.COLLECTIVE_NAMES[collective],
            dtype=NAMES[dtype],
            op=capabilities.op_name(collective, op),
            size_bytes=self._size,
            hosts=self._planner.world_size,
            state=stage,
            rails=tuple(self._rail(rail) for rail in self._planner.rails),
            splits=splits,
            why=self._why(splits) + cold * (stage == "cold"),
            note=self._planner.note,
        )

    def _obstacle(self, rail: StripedRail) -> str:
        verdict = capabilities.barred(rail.kind, *self._call)
        if verdict is not None:
            return f"{verdict.reason}: {verdict.text}"
        if self._planner.rail_states[rail.index] is RailState.DOWN:
            return f"down: {self._planner.reasons[rail.index]}"
        return ""

    def _rail(self, rail: StripedRail) -> RailPrediction:
        obstacle, line = self._obstacle(rail), self._table.line(self._key, rail.index)
        how = capabilities.use(rail, *self._call[:2], self._count, self._planner.world_size)
        return RailPrediction(
            rail=rail.name,
            kind=rail.kind,
            state=self._planner.rail_states[rail.index],
            obstacle=obstacle,
            alone_us=None if obstacle else 1e6 * self._single_s(rail.index),
            a_us=line.a_s * 1e6,
            b_bps=line.rate * 8,
            samples=sum(self._table.samples(self._key, rail.index, alone) for alone in (True, False)),
            how="" if obstacle else how.text,
            source=self._source(rail.index),
        )

    def _source(self, rail: int) -> str:
        """Say what the cost of a rail follows from."""
        if any(self._table.samples(self._key, rail, alone) for alone in (True, False)):
            return "measured"
        if (place := self._table.place(self._key, rail, True)) is None:
            return "prior: kind, rate and hosts"
        return f"measured: {place[0].collective} up to {place[0].size_class} bytes"

    def _single_s(self, rail: int) -> float:
        return self._table.single_s(self._key, rail, self._size)

    def _splits(self, chosen: Split) -> tuple[SplitPrediction, ...]:
        """Return each rail alone, all rails together, and what is chosen: several where rails take turns."""
        names = {rail.index: rail.name for rail in self._able}
        lines = {rail: self._table.line(self._key, rail) for rail in names}
        ways: list[tuple[Part, ...]] = [((rail, 0, self._count),) for rail in names]
        if len(names) > 1 and self._count >= 2 * ALIGNMENT:
            ways.append(balanced(lines, self._size, self._count).parts)
        times = {
            way: self._single_s(way[0][0])
            if len(way) == 1
            else time_of(way, lines, self._size // self._count)
            for way in dict.fromkeys([*ways, *chosen.ways])
        }
        alone_s = min(time_s for way, time_s in times.items() if len(way) == 1)
        return tuple(
            SplitPrediction(
                shares={names[rail]: count / self._count for rail, _, count in way},
                time_us=1e6 * time_s,
                gain=alone_s / time_s - 1,
                chosen=way in chosen.ways,
            )
            for way, time_s in times.items()
        )

    def _why(self, splits: Sequence[SplitPrediction]) -> str:
        if not self._able:
            return "no rail can carry such calls now"
        if len(self._able) == 1:
            return f"{self._able[0].name} is the only rail that can carry such calls now"
        if self._planner.fixed:
            return "shares are given: nothing is chosen"
        chosen, *others = [split for split in splits if split.chosen]
        if len(chosen.shares) > 1:
            return (
                f"a split over {', '.join(chosen.shares)} is predicted to be {_percent(chosen.gain)} quicker "
                f"than the best rail alone; a rail is engaged for {_percent(ENGAGE - 1)}"
            )
        why = f"{shares_text(chosen.shares)} is the quickest rail as far as is known"
        if others:
            rails = ", ".join(rail for split in (chosen, *others) for rail in split.shares)
            why = f"calls of this size take {rails} in turn, which is quicker than one of them"
        best = max((split.gain for split in splits if len(split.shares) > 1), default=None)
        if best is None:
            return f"{why}; so small a tensor is not cut"
        engaged = f"a further one is engaged for {_percent(ENGAGE - 1)}"
        return f"{why}; a split would gain {_percent(best)} over the best rail alone; {engaged}"


def shares_text(shares: Mapping[str, float]) -> str:
    """Return `tcp0 51.2% + tcp1 48.8%`, or a rail's name alone."""
    if len(shares) == 1:
        return next(iter(shares))
    return " + ".join(f"{rail} {share:.1%}" for rail, share in shares.items())


def _named(choices: Mapping[str, T], name: str, what: str = "collective") -> T:
    if not isinstance(name, str) or name not in choices:
        raise InvalidOption(f"{what} {name!r}", f"one of {', '.join(choices)}", f"correct the {what}")
    return choices[name]


def _percent(gain: float) -> str:
    return f"{100 * gain:.1f} %"


def _rail_row(rail: RailPrediction) -> tuple[str, ...]:
    alone = "-" if rail.alone_us is None else f"{rail.alone_us:.1f}"
    cost = rail.obstacle or ", ".join(filter(None, (rail.source, rail.how)))
    numbers = (alone, f"{rail.a_us:.1f}", f"{rail.b_bps / 1e6:.2f}", str(rail.samples))
    return (rail.rail, rail.kind, rail.state, *numbers, cost)


def columns(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return lines of columns as wide as they must be."""
    table = [titles, *rows]
    widths = [max(len(row[place]) for row in table) for place in range(len(titles))]
    return [
        "  ".join(value.ljust(width) for value, width in zip(row, widths, strict=True)).rstrip()
        for row in table
    ]
