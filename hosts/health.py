# SPDX-License-Identifier: Apache-2.0
"""Say in words why rails cannot carry calls, as far as the agent and the controller know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from railweave._native.agent import Failure, FailureKind
from railweave.hosts.decisions import Reason, Verdict

if TYPE_CHECKING:
    from railweave._native.agent import Agent, RailState
    from railweave.hosts.rails import Opening
    from railweave.hosts.trees import Trees

UP = "up"


class Health:
    """Combines the agent's states of the rails with the trees' states of their planes."""

    def __init__(
        self, rank: int, agent: Agent, trees: Trees, rails: Sequence[Opening], timeout_s: float
    ) -> None:
        """Watch the `rails` in use. A call must complete within `timeout_s`."""
        self._rank = rank
        self._agent = agent
        self._trees = trees
        self._rails = tuple(rails)
        self._timeout_s = timeout_s

    def states(self) -> Mapping[str, RailState]:
        """Return the states of the rails in use."""
        states = self._agent.rail_states()
        return {rail.spec.name: states[rail.index] for rail in self._rails}

    def verdicts(self) -> Mapping[str, Verdict]:
        """Return, by name, why rails carry nothing now: the rail has failed, or its plane is down."""
        planes = {name: Verdict(Reason.TREE_DOWN, why) for name, why in self._trees.planes_down().items()}
        out = {
            name: Verdict(Reason.RAIL_DOWN, f"it is {state.state}: {state.reason}")
            for name, state in self.states().items()
            if state.state != UP
        }
        return {**planes, **out}

    def overdue(self, op_index: int | None) -> Failure:
        """Return why a call has not completed by its deadline, as far as this rank knows.

        Without an `op_index`, the ranks have not agreed on the rails for the next call.
        """
        what = "the ranks to agree on their rails" if op_index is None else f"call #{op_index}"
        waited = f"rank {self._rank} has waited {self._timeout_s:g} s, its timeout (timeout_s), for {what}"
        lagging = set() if op_index is None else set(self._agent.lagging(op_index))
        names = [rail.spec.name for rail in self._rails if rail.index in lagging]
        obstacles = self._obstacles()
        reasons = "; ".join(
            f"{name}: {why}" if len(obstacles) > 1 else why for name, why in obstacles.items()
        )
        on = f" on {', '.join(names)}" if names else ""
        if not obstacles:
            stopped = f"{waited}{on}: a rank does not call it, or a rail has stopped"
            return Failure(FailureKind.INTERNAL, self._rank, stopped)
        whose = (
            "" if set(names) <= set(obstacles) else f"{on}: no rail joins all ranks, or one does not call it"
        )
        return Failure(FailureKind.RAIL_DOWN, -1, f"{reasons}; {waited}{whose}", (names or [*obstacles])[-1])

    def _obstacles(self) -> Mapping[str, str]:
        """Return the obstacle of each rail by name. The last working rail may have one, too."""
        found = {name: self._trees.obstacle(name) or state.reason for name, state in self.states().items()}
        return {name: why for name, why in found.items() if why}
