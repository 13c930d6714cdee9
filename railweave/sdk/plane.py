# SPDX-License-Identifier: Apache-2.0
"""An algorithm on a plane of the controller, which gives it to rails."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from railweave.controller.state import SwitchState
from railweave.sdk import library
from railweave.sdk.compile import require_current
from railweave.sdk.errors import AlgorithmError
from railweave.sdk.library import Algorithm
from railweave.sdk.states import require_fit
from railweave.topologies.model import Plane


class Program:
    """The program of a plane's switches, and their entries."""

    def __init__(self, plane: Plane) -> None:
        """Find the algorithm. AlgorithmError if a rail cannot use it."""
        self._plane = plane
        self._algorithm = library.find(plane.algorithm)
        require_rail(self._algorithm)
        self.artifact = self._algorithm.artifact()
        self.counters: Sequence[str] = self._algorithm.manifest.counters

    def wanted(self, jobs: int) -> Mapping[str, SwitchState]:
        """Return the state of each switch for the jobs 0 to `jobs` - 1, each with a rank on each NIC.

        A further job must not change the entries of the others. Raises AlgorithmError if the program has no
        room for them.
        """
        ranks = len(self._plane.nics)
        made = [self._algorithm.job(number, ranks, {}) for number in range(jobs)]
        states = self._algorithm.wanted(self._plane, made)
        require_fit(states, self.artifact, self.counters)
        return states


def require_rail(algorithm: Algorithm) -> None:
    """Raise AlgorithmError unless ranks can let an algorithm carry a rail, and test it after a failure."""
    dtypes, operations = algorithm.manifest.dtypes, algorithm.manifest.operations
    compare = "use --compare for this algorithm"
    for holds, given, expected, do in (
        ("sum" in operations, f"has {', '.join(operations)}", "the operation sum", "use one that sums"),
        ("int32" in dtypes, f"sums {', '.join(dtypes)}", "int32, with which ranks test a rail", compare),
        (algorithm.server is None, "has a parameter server", "none: a rail has no place for it", compare),
    ):
        if not holds:
            raise AlgorithmError(f"a rail with {algorithm.name}, which {given}", expected, do)
    require_current(algorithm)
