# SPDX-License-Identifier: Apache-2.0
"""All costs of a communicator: by class of calls and rail, and what to believe where nothing is measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from railweave._native.collectives import Collective, DType
from railweave.hosts.capabilities import REDUCING
from railweave.hosts.striping.costs import Line, RailCost
from railweave.hosts.striping.priors import StripedRail, prior_lines

SMALL_BYTES = 64 << 10  # calls below this tell nothing of bandwidth

INTEGERS = frozenset({DType.INT8, DType.UINT8, DType.INT32, DType.INT64})


def numbers_of(collective: Collective, dtype: DType) -> str:
    """Return what costs alike: a switch that adds floats needs a second exchange for their exponents."""
    return "int" if dtype in INTEGERS or collective not in REDUCING else "float"


@dataclass(frozen=True, order=True)
class CostKey:
    """A class of calls as far as costs are concerned."""

    collective: str
    numbers: str  # int or float
    size_class: int  # bytes of the whole tensor: calls up to this size, and larger than half of it


class CostTable:
    """Costs by class and rail. They outlive the absence of a rail."""

    def __init__(self, rails: Sequence[StripedRail], hosts: int) -> None:
        """Begin with priors only."""
        self._rails = tuple(rails)
        self._hosts = hosts
        self._costs: dict[CostKey, dict[int, RailCost]] = {}
        self._priors: dict[str, dict[int, Line]] = {}
        self._loaded: set[tuple[CostKey, int]] = set()  # and not measured since

    def clear(self) -> None:
        """Forget everything but the priors."""
        self._costs.clear()
        self._loaded.clear()

    def load(self, key: CostKey, rail: int, cost: RailCost) -> None:
        """Take a cost from elsewhere: it holds until it is measured here."""
        cost.distrust()
        self._costs.setdefault(key, {})[rail] = cost
        self._loaded.add((key, rail))

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

    def source(self, key: CostKey, rail: int) -> str:
        """Say what the cost of a rail follows from where it has not been measured."""
        if not self._known(key, rail):
            return "prior: kind, rate and hosts"
        return f"measured up to {self._nearest(key, rail)[0].size_class} bytes"

    def latency_s(self, key: CostKey, rail: int) -> float:
        """Return the time of the smallest calls on a rail: the least of smaller classes, else the prior."""
        smaller = [cost for of, cost in self._known(key, rail) if of.size_class < key.size_class]
        if not smaller:
            return self._prior(key.collective, rail).a_s
        return min(cost.mean_s for cost in smaller)

    def _estimate(self, key: CostKey, rail: int) -> Line:
        """Return what follows from the nearest class that is known, else the prior."""
        prior = self._prior(key.collective, rail)
        if not self._known(key, rail):
            return prior
        nearest, cost = self._nearest(key, rail)
        if SMALL_BYTES > nearest.size_class < key.size_class:
            return Line(cost.mean_s, prior.rate)
        return cost.part()

    def _nearest(self, key: CostKey, rail: int) -> tuple[CostKey, RailCost]:
        known = self._known(key, rail)
        return min(known, key=lambda pair: (_distance(pair[0].size_class, key.size_class), pair[0]))

    def _known(self, key: CostKey, rail: int) -> list[tuple[CostKey, RailCost]]:
        return [
            (of, costs[rail])
            for of, costs in self._costs.items()
            if (of.collective, of.numbers) == (key.collective, key.numbers)
            and rail in costs
            and costs[rail].known
        ]

    def _prior(self, collective: str, rail: int) -> Line:
        if collective not in self._priors:
            self._priors[collective] = prior_lines(self._rails, self._hosts, collective)
        return self._priors[collective][rail]


def _distance(size: int, other: int) -> int:
    """Return how many classes lie between two."""
    return abs(size.bit_length() - other.bit_length())
