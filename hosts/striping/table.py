# SPDX-License-Identifier: Apache-2.0
"""All costs of a communicator: by class of calls and rail, and what to believe where nothing is measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from railweave._native.collectives import Collective, DType
from railweave.hosts.capabilities import REDUCING
from railweave.hosts.striping.costs import Line, RailCost
from railweave.hosts.striping.priors import StripedRail, prior_lines

SMALL_BYTES = 64 << 10  # calls up to this size tell little of bandwidth
UNMEASURED = 2.0  # times what links and other classes promise, a rail may take
LIKE = 2  # classes of size between calls of which one tells how long the other takes on one rail

# What costs alike, by the lanes that an in-network rail sends for 4 bytes of it.
NUMBERS = {"int": 1, "int8": 4, "float": 1, "half": 2}
_NUMBERS_OF = {
    DType.INT8: "int8",
    DType.UINT8: "int8",
    DType.INT32: "int",
    DType.INT64: "int",
    DType.FLOAT16: "half",
    DType.BFLOAT16: "half",
}


def numbers_of(collective: Collective, dtype: DType) -> str:
    """Return one of NUMBERS: a switch that adds floats needs a second exchange for their exponents.

    What is not reduced passes as it lies in memory.
    """
    return _NUMBERS_OF.get(dtype, "float") if collective in REDUCING else "int"


@dataclass(frozen=True, order=True)
class CostKey:
    """A class of calls as far as costs are concerned."""

    collective: str
    numbers: str  # of NUMBERS
    size_class: int  # bytes of the whole tensor: calls up to this size, and larger than half of it


class CostTable:
    """Costs by class and rail. They outlive the absence of a rail."""

    def __init__(self, rails: Sequence[StripedRail], hosts: int) -> None:
        """Begin with priors only."""
        self._rails = tuple(rails)
        self._hosts = hosts
        self._rates_known = all(rail.rate_bps > 0 for rail in rails)
        self._costs: dict[CostKey, dict[int, RailCost]] = {}
        self._priors: dict[tuple[str, int], dict[int, Line]] = {}
        self._loaded: set[tuple[CostKey, int]] = set()  # and not measured since
        self._nearest_of: dict[tuple[CostKey, int], CostKey | None] = {}  # while no further class is known

    def clear(self) -> None:
        """Forget everything but the priors."""
        self._costs.clear()
        self._loaded.clear()
        self._nearest_of.clear()

    def load(self, key: CostKey, rail: int, cost: RailCost) -> None:
        """Take a cost from elsewhere: it holds until it is measured here."""
        cost.distrust()
        self._costs.setdefault(key, {})[rail] = cost
        self._loaded.add((key, rail))
        self._nearest_of.clear()

    def loaded(self, key: CostKey, rail: int) -> bool:
        """Whether a cost is from elsewhere."""
        return (key, rail) in self._loaded

    def keys(self) -> Sequence[CostKey]:
        """Return the classes of which something is known, in order."""
        return sorted(key for key, costs in self._costs.items() if any(cost.known for cost in costs.values()))

    def get(self, key: CostKey, rail: int) -> RailCost | None:
        """Return what is known of a rail in a class; None if nothing is."""
        cost = self._costs.get(key, {}).get(rail)
        return cost if cost is not None and cost.known else None

    def place(self, key: CostKey, rail: int) -> RailCost:
        """Return where to note what is measured of a rail in a class."""
        costs = self._costs.setdefault(key, {})
        if rail not in costs:
            costs[rail] = RailCost(key.size_class, self.latency_s(key, rail))
        return costs[rail]

    def observe(self, key: CostKey, rail: int, size: int, time_s: float, alone: bool) -> bool:
        """Take a measured time; returns whether the rail's speed has changed for good."""
        self._loaded.discard((key, rail))
        if self.get(key, rail) is None:
            self._nearest_of.clear()
        return self.place(key, rail).observe(size, time_s, alone, self.latency_s(key, rail))

    def distrust(self, rail: int) -> None:
        """Hold what is known of a rail for true only until it is measured again."""
        for costs in self._costs.values():
            if rail in costs:
                costs[rail].distrust()

    def single_s(self, key: CostKey, rail: int, size: int) -> float:
        """Return the time of a whole call on one rail, as measured or as estimated."""
        cost = self.get(key, rail)
        return cost.single_s(size) if cost is not None else self._estimate(key, rail).time_s(size)

    def part(self, key: CostKey, rail: int) -> Line:
        """Return the cost of a part of a split call on a rail, as measured or as estimated."""
        cost = self.get(key, rail)
        return cost.part() if cost is not None else self._estimate(key, rail)

    def expected_s(self, key: CostKey, rail: int, size: int) -> float:
        """Return the longest that a part may be expected to take; 0 if nothing is known of the rail."""
        if self.get(key, rail) is not None:
            return self.part(key, rail).time_s(size)
        return UNMEASURED * self.part(key, rail).time_s(size) if self._rates_known else 0.0

    def alike(self, key: CostKey, one: int, other: int) -> bool:
        """Return whether two rails are of one kind and rate."""
        return self._prior(key, one) == self._prior(key, other)

    def source(self, key: CostKey, rail: int) -> str:
        """Say what the cost of a rail follows from where it has not been measured."""
        nearest = self._nearest(key, rail)
        if nearest is None:
            return "prior: kind, rate and hosts"
        return f"measured: {nearest[0].collective} up to {nearest[0].size_class} bytes"

    def latency_s(self, key: CostKey, rail: int) -> float:
        """Return the least time of smaller calls on a rail, less what their bytes take; else the prior's."""
        prior = self._prior(key, rail)
        smaller = [
            cost.latency_s(prior)
            for of, cost in self._known(rail)
            if (of.collective, of.numbers) == (key.collective, key.numbers) and of.size_class < key.size_class
        ]
        return min(smaller, default=prior.a_s)

    def least_s(self, key: CostKey, rail: int, size: int) -> float:
        """Return the least time of a whole call on a rail alone: that of like calls, else by its link."""
        alone = [
            (of.collective != key.collective, _distance(of, key), of, cost.alone.line())
            for of, cost in self._known(rail)
            if cost.alone.known and _distance(of, key) <= LIKE and not _says_nothing_of_rate(of, key)
        ]
        if alone:
            _, _, of, line = min(alone)
            return self._scaled(line, of, key, rail).time_s(size)
        return size / self._prior(key, rail).rate if self._rates_known else 0.0

    def _estimate(self, key: CostKey, rail: int) -> Line:
        """Return what follows from the nearest class that is known, else the prior."""
        nearest = self._nearest(key, rail)
        if nearest is None:
            return self._prior(key, rail)
        of, cost = nearest
        line, prior = cost.part(), self._prior(of, rail)
        if _says_nothing_of_rate(of, key):
            line = Line(cost.latency_s(prior), prior.rate)
        return self._scaled(line, of, key, rail)

    def _scaled(self, line: Line, of: CostKey, key: CostKey, rail: int) -> Line:
        """Return the cost of other calls: a rail is taken to keep as much of what its link allows."""
        its, prior = self._prior(of, rail), self._prior(key, rail)
        return Line(line.a_s * prior.a_s / its.a_s, line.rate * prior.rate / its.rate)

    def _nearest(self, key: CostKey, rail: int) -> tuple[CostKey, RailCost] | None:
        def order(of: CostKey) -> tuple[object, ...]:
            unlike = (of.collective != key.collective, of.numbers != key.numbers)
            return (_says_nothing_of_rate(of, key), *unlike, _distance(of, key), of)

        if (key, rail) not in self._nearest_of:
            known = (of for of, _ in self._known(rail))
            self._nearest_of[key, rail] = min(known, key=order, default=None)
        nearest = self._nearest_of[key, rail]
        return (nearest, self._costs[nearest][rail]) if nearest is not None else None

    def _known(self, rail: int) -> list[tuple[CostKey, RailCost]]:
        return [(of, costs[rail]) for of, costs in self._costs.items() if rail in costs and costs[rail].known]

    def _prior(self, key: CostKey, rail: int) -> Line:
        of = (key.collective, NUMBERS[key.numbers])
        if of not in self._priors:
            self._priors[of] = prior_lines(self._rails, self._hosts, *of)
        return self._priors[of][rail]


def _distance(one: CostKey, other: CostKey) -> int:
    """Return how many classes of size lie between two."""
    return abs(one.size_class.bit_length() - other.size_class.bit_length())


def _says_nothing_of_rate(of: CostKey, key: CostKey) -> bool:
    return SMALL_BYTES >= of.size_class < key.size_class
