# SPDX-License-Identifier: Apache-2.0
"""The sequence of calls that all ranks share: each call gets its place, is cut as agreed, and waited for."""

from __future__ import annotations

import threading

from railweave._native.agent import Agent, Failure
from railweave._native.collectives import Collective, ReduceOp
from railweave.hosts.arrays import Array, as_bits
from railweave.hosts.errors import InvalidOption
from railweave.hosts.plans import Planner

KEPT = 64  # calls in flight before finished ones are looked for


class CallSequence:
    """Submits this rank's calls, one at a time whatever the thread, and keeps their arrays until they end."""

    def __init__(self, agent: Agent, plan: Planner) -> None:
        """Begin before the first call."""
        self._agent = agent
        self._plan = plan
        self._lock = threading.Lock()
        self._arrays: dict[int, tuple[Array, Array]] = {}  # by op index: what the rails read and write

    def submit(
        self,
        collective: Collective,
        source: Array,
        target: Array,
        *,
        op: ReduceOp,
        root: int,
        count: int,
        start_now: bool,
    ) -> int:
        """Make a call the next one; its op index. InvalidOption says what the agent cannot take."""
        del collective, root
        with self._lock:
            self._let_go()
            op_index, _ = self._agent.plan_point()
            plan = self._plan(source.dtype.char, op, count)
            try:
                self._agent.submit(
                    op_index, plan.call, as_bits(source), as_bits(target), plan.parts, start_now
                )
            except ValueError as error:
                raise InvalidOption(str(error)) from None
            plan.tally.calls += 1
            self._arrays[op_index] = (source, target)
        return op_index

    def _let_go(self) -> None:
        """Forget the arrays of calls that nobody has waited for and that have ended."""
        if len(self._arrays) > KEPT:
            for op_index in [index for index in list(self._arrays) if self._agent.done(index)]:
                self._arrays.pop(op_index, None)

    def wait(self, op_index: int, timeout_s: float) -> bool:
        """Wait for the end of a call; False if the time is up."""
        if not self._agent.wait(op_index, timeout_s):
            return False
        self._arrays.pop(op_index, None)
        return True

    def done(self, op_index: int) -> bool:
        """Whether a call has ended."""
        return bool(self._agent.done(op_index))

    def fail(self, op_index: int, failure: Failure) -> None:
        """End everything because of a call that does not end."""
        self._agent.fail(failure)
        self._arrays.pop(op_index, None)
