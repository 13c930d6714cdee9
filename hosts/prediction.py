# SPDX-License-Identifier: Apache-2.0
"""Predict a call: its time on each rail and with each split, and the reason for the choice."""

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
    """Describe the predicted cost of one rail in calls of this kind: a fixed time, and a rate.

    Attributes:
        rail: Name of the rail.
        kind: Kind of the rail.
        state: `up`, `down` or `recovering`.
        obstacle: Reason why the rail cannot carry such calls; empty if it can.
        alone_us: Microseconds of the whole call on this rail alone; None if it cannot carry the call.
        a_us: Fixed time of a call, in microseconds.
        b_bps: Rate of the call's tensor, in bit/s.
        samples: Number of measurements behind its present speed.
        source: Origin of the cost: `measured…` or `prior…`.
        how: How an in-network rail carries the call, such as `multicast`; may be empty.
    """

    rail: str
    kind: str
    state: str
    obstacle: str
    alone_us: float | None
    a_us: float
    b_bps: float
    samples: int
    source: str
    how: str = ""


@dataclass(frozen=True)
class SplitPrediction:
    """Describe one split of the call.

    Attributes:
        shares: Share of each rail that carries a part, by rail name.
        time_us: Predicted time in microseconds.
        gain: Speed-up over the best rail alone: 0.05 means 5 % faster.
        chosen: Whether calls use this split. Several are chosen if calls alternate between rails.
    """

    shares: Mapping[str, float]
    time_us: float
    gain: float
    chosen: bool


@dataclass(frozen=True)
class Prediction:
    """Describe how a call would be carried now, and why. It prints as a table.

    Attributes:
        collective: Name of the collective.
        dtype: Name of the data type.
        op: Name of the operation; empty for collectives without one.
        size_bytes: Bytes of the whole tensor.
        hosts: Number of ranks.
        state: How far the ranks have learned calls of this class, from `cold` to `hot`. `fixed shares` or
            `deterministic` if they learn nothing.
        rails: Cost of each rail.
        splits: Candidate splits; the chosen ones are marked.
        why: Reason for the choice, in words.
        note: Further remark about the costs, such as a costs file that was not used; may be empty.
    """

    collective: str
    dtype: str
    op: str
    size_bytes: int
    hosts: int
    state: str
    rails: tuple[RailPrediction, ...]
    splits: tuple[SplitPrediction, ...]
    why: str
    note: str = ""

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
    """Predict how a call of `size_bytes` (of the whole tensor) would be carried now.

    Raises InvalidOption for an unknown collective, dtype or op, and for a size that holds no element.
    Any thread may call it.
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
    """Return the present shares of large allreduces, by rail. Any thread may call it."""
    if planner.fixed:
        return {rail.name: rail.share for rail in planner.rails}
    with planner.lock:
        alive = [rail.index for rail in planner.rails if rail.index not in planner.reasons]
        key = CostKey("all_reduce", "float", 64 << 20)
        split = CallClass(key, alive, planner.table).choose(key.size_class, key.size_class)
    carried = {rail: part for rail, _, part in split.parts}
    return {rail.name: carried.get(rail.index, 0) / key.size_class for rail in planner.rails}


class _Question:
    """The prediction of one call."""

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
        verdict = capabilities.barred(rail, *self._call)
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
        """Return the origin of a rail's cost."""
        if any(self._table.samples(self._key, rail, alone) for alone in (True, False)):
            return "measured"
        if (place := self._table.place(self._key, rail, True)) is None:
            return "prior: kind, rate and hosts"
        return f"measured: {place[0].collective} up to {place[0].size_class} bytes"

    def _single_s(self, rail: int) -> float:
        return self._table.single_s(self._key, rail, self._size)

    def _splits(self, chosen: Split) -> tuple[SplitPrediction, ...]:
        """Return each rail alone, all rails together, and the chosen splits."""
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
                f"a split over {', '.join(chosen.shares)} is predicted to be {_percent(chosen.gain)} faster "
                f"than the best rail alone; a rail is engaged for {_percent(ENGAGE - 1)}"
            )
        why = f"{shares_text(chosen.shares)} is the quickest rail as far as is known"
        if others:
            rails = ", ".join(rail for split in (chosen, *others) for rail in split.shares)
            why = f"calls of this size alternate between {rails}, which is faster than one of them"
        best = max((split.gain for split in splits if len(split.shares) > 1), default=None)
        if best is None:
            return f"{why}; so small a tensor is not cut"
        engaged = f"a further one is engaged for {_percent(ENGAGE - 1)}"
        return f"{why}; a split would gain {_percent(best)} over the best rail alone; {engaged}"


def shares_text(shares: Mapping[str, float]) -> str:
    """Return the shares as text: `tcp0 51.2% + tcp1 48.8%`, or the name of a single rail."""
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
    """Return the lines of a table with the least column widths."""
    table = [titles, *rows]
    widths = [max(len(row[place]) for row in table) for place in range(len(titles))]
    return [
        "  ".join(value.ljust(width) for value, width in zip(row, widths, strict=True)).rstrip()
        for row in table
    ]
