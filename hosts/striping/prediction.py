# SPDX-License-Identifier: Apache-2.0
"""Predicts how a call of some size goes: what each rail would take, what splits would take, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from railweave._native.collectives import Collective, DType, ReduceOp, item_size
from railweave.hosts import capabilities
from railweave.hosts.arrays import NAMES
from railweave.hosts.decisions import size_class
from railweave.hosts.errors import InvalidOption
from railweave.hosts.striping.classes import CallClass
from railweave.hosts.striping.filling import ALIGNMENT, ENGAGE, STAY, Part, cut, time_of, water_fill
from railweave.hosts.striping.fixed import fixed_split
from railweave.hosts.striping.plan import use
from railweave.hosts.striping.planner import Planner
from railweave.hosts.striping.priors import StripedRail
from railweave.hosts.striping.states import ClassState, RailState
from railweave.hosts.striping.table import CostKey, numbers_of

T = TypeVar("T")


@dataclass(frozen=True)
class RailPrediction:
    """What one rail costs in calls of this kind: microseconds, and bits of the tensor per second."""

    rail: str
    kind: str
    state: str  # up, down or recovering
    obstacle: str  # why it takes no part, if it cannot
    alone_us: float | None  # the whole call on this rail; none if it cannot carry it
    a_us: float | None
    b_bps: float | None
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
        lines += columns(
            ("rail", "kind", "state", "alone (us)", "a (us)", "b (Mbit/s)", "samples", "cost"),
            [_rail_row(rail) for rail in self.rails],
        )
        lines += columns(
            ("", "split", "time (us)", "gain"),
            [
                (
                    "->" if split.chosen else "",
                    shares_text(split.shares),
                    f"{split.time_us:.1f}",
                    _percent(split.gain),
                )
                for split in self.splits
            ],
        )
        return "\n".join([*lines, self.why, *([self.note] if self.note else [])])


def predict(
    planner: Planner, size_bytes: int, collective: str = "all_reduce", dtype: str = "float32", op: str = "sum"
) -> Prediction:
    """Return how a call of `size_bytes` (of the whole tensor) would go now, and why.

    InvalidOption for an unknown collective, dtype or op, and a size that holds no element.
    Any thread may ask.
    """
    collectives = {name: each for each, name in capabilities.COLLECTIVE_NAMES.items()}
    which = _named(collectives, collective, "collective")
    kind = _named({name: each for each, name in NAMES.items()}, dtype, "dtype")
    operation = _named(capabilities.OPS, op, "op")
    count = _count(planner, size_bytes, which, kind)
    size = capabilities.size_bytes(which, count, item_size(kind), planner.world_size)
    with planner.lock:
        return _Predictor(planner, which, kind, operation, count, size).predict()


class _Predictor:
    """One question to a planner."""

    def __init__(
        self, planner: Planner, collective: Collective, dtype: DType, op: ReduceOp, count: int, size: int
    ) -> None:
        self._planner = planner
        self._call = (collective, dtype, op)
        self._count, self._size = count, size
        self._key = CostKey(
            capabilities.COLLECTIVE_NAMES[collective], numbers_of(collective, dtype), size_class(size)
        )
        self._able = [rail for rail in planner.rails if not self._obstacle(rail)]
        self._names = {rail.index: rail.name for rail in planner.rails}

    def predict(self) -> Prediction:
        collective, dtype, op = self._call
        chosen, state = self._planner.in_force((collective, dtype, op, 0, self._count))
        if not self._able:
            chosen = ()
        elif not chosen and self._planner.fixed:
            chosen = (fixed_split(self._able, self._count, self._size // self._count)[0],)
        elif not chosen:
            chosen = self._class().choose(self._size, self._count).ways
        splits = self._splits(chosen)
        return Prediction(
            collective=capabilities.COLLECTIVE_NAMES[collective],
            dtype=NAMES[dtype],
            op=capabilities.op_name(collective, op),
            size_bytes=self._size,
            hosts=self._planner.world_size,
            state=self._state(state),
            rails=tuple(self._rail(rail) for rail in self._planner.rails),
            splits=splits,
            why=self._why(splits) + self._caveat(state),
            note=self._planner.note,
        )

    def _class(self) -> CallClass:
        return CallClass(self._key, [rail.index for rail in self._able], self._planner.table)

    def _state(self, in_force: str | None) -> str:
        if self._planner.fixed:
            return "fixed shares"
        if in_force is not None:
            return in_force
        if not self._planner.learning:
            return "deterministic"
        return self._class().state if len(self._able) > 1 else "nothing to learn"

    def _obstacle(self, rail: StripedRail) -> str:
        collective, dtype, op = self._call
        reason = capabilities.obstacle(rail.kind, dtype, op, collective)
        if reason is not None:
            return f"{reason}: {capabilities.limits(rail.kind)}"
        if self._planner.rail_states[rail.index] is RailState.DOWN:
            return f"down: {self._planner.reasons.get(rail.index, '')}"
        return ""

    def _rail(self, rail: StripedRail) -> RailPrediction:
        obstacle = self._obstacle(rail)
        table = self._planner.table
        cost, line = table.get(self._key, rail.index), table.part(self._key, rail.index)
        loaded = table.loaded(self._key, rail.index)
        return RailPrediction(
            rail=rail.name,
            kind=rail.kind,
            state=self._planner.rail_states[rail.index],
            obstacle=obstacle,
            alone_us=None if obstacle else 1e6 * table.single_s(self._key, rail.index, self._size),
            a_us=line.a_s * 1e6,
            b_bps=line.rate * 8,
            samples=cost.samples if cost is not None else 0,
            how="" if obstacle else use(rail, *self._call[:2], self._count, self._planner.world_size).text,
            source="loaded" if loaded else "measured" if cost else table.source(self._key, rail.index),
        )

    def _splits(self, chosen: Sequence[tuple[Part, ...]]) -> tuple[SplitPrediction, ...]:
        """Return each rail alone, all rails together, and what is chosen: several where rails take turns."""
        table, size = self._planner.table, self._size
        ways: list[tuple[Part, ...]] = [((rail.index, 0, self._count),) for rail in self._able]
        lines = {rail.index: table.part(self._key, rail.index) for rail in self._able}
        if len(lines) > 1 and self._count >= 2 * ALIGNMENT:
            ways.append(cut(water_fill(lines, size), self._count))
        times = {
            way: table.single_s(self._key, way[0][0], size)
            if len(way) == 1
            else time_of(way, lines, size // self._count)
            for way in dict.fromkeys([*ways, *chosen])
        }
        alone_s = min((time_s for way, time_s in times.items() if len(way) == 1), default=0.0)
        return tuple(
            SplitPrediction(
                shares={self._names[rail]: count / self._count for rail, _, count in way},
                time_us=1e6 * time_s,
                gain=alone_s / time_s - 1,
                chosen=way in chosen,
            )
            for way, time_s in times.items()
        )

    def _caveat(self, in_force: str | None) -> str:
        if self._state(in_force) != ClassState.COLD:
            return ""
        return "; the first calls of this size try each rail, and what they take decides"

    def _why(self, splits: Sequence[SplitPrediction]) -> str:
        if not self._able:
            return "no rail can carry such calls now"
        if len(self._able) == 1:
            return f"{self._able[0].name} is the only rail that can carry such calls now"
        chosen, *others = [split for split in splits if split.chosen]
        several = [split for split in splits if len(split.shares) > 1]
        best = min(several, key=lambda split: split.time_us, default=None)
        if self._planner.fixed:
            return "shares are given: nothing is chosen"
        if len(chosen.shares) > 1:
            return (
                f"a split over {', '.join(chosen.shares)} is predicted to be {_percent(chosen.gain)} quicker "
                f"than the best rail alone; a rail is engaged for {_percent(ENGAGE - 1)}, and kept for "
                f"{_percent(STAY - 1)}"
            )
        (rail,) = chosen.shares
        quickest = f"{rail} is the quickest rail as far as is known"
        if others:
            rails = ", ".join(rail for split in (chosen, *others) for rail in split.shares)
            quickest = f"calls of this size take {rails} in turn, which is quicker than one of them"
        if best is None:
            return f"{quickest}; so small a tensor is not cut"
        return (
            f"{quickest}; a split would gain {_percent(best.gain)} over "
            f"the best rail alone; a further one is engaged for {_percent(ENGAGE - 1)}"
        )


def shares_text(shares: Mapping[str, float]) -> str:
    """Return `tcp0 51.2% + tcp1 48.8%`, or a rail's name alone."""
    if len(shares) == 1:
        return next(iter(shares))
    return " + ".join(f"{rail} {share:.1%}" for rail, share in shares.items())


def _count(planner: Planner, size_bytes: int, collective: Collective, dtype: DType) -> int:
    unit = capabilities.size_bytes(collective, 1, item_size(dtype), planner.world_size)
    if isinstance(size_bytes, bool) or not isinstance(size_bytes, int) or size_bytes < unit:
        raise InvalidOption(
            f"size_bytes is {size_bytes!r}: expected at least {unit}, the least tensor of "
            f"{capabilities.COLLECTIVE_NAMES[collective]} {NAMES[dtype]}"
        )
    return size_bytes // unit


def _named(choices: Mapping[str, T], name: str, what: str) -> T:
    if name not in choices:
        raise InvalidOption(f"unknown {what} {name!r}: expected one of {', '.join(choices)}")
    return choices[name]


def _percent(gain: float) -> str:
    return f"{100 * gain:.1f} %"


def _rail_row(rail: RailPrediction) -> tuple[str, ...]:
    return (
        rail.rail,
        rail.kind,
        rail.state,
        "-" if rail.alone_us is None else f"{rail.alone_us:.1f}",
        "-" if rail.a_us is None else f"{rail.a_us:.1f}",
        "-" if rail.b_bps is None else f"{rail.b_bps / 1e6:.2f}",
        str(rail.samples),
        rail.obstacle or ", ".join(filter(None, (rail.source, rail.how))),
    )


def columns(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return lines of columns as wide as they must be."""
    table = [titles, *rows]
    widths = [max(len(row[place]) for row in table) for place in range(len(titles))]
    return [
        "  ".join(value.ljust(width) for value, width in zip(row, widths, strict=True)).rstrip()
        for row in table
    ]
