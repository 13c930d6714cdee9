# SPDX-License-Identifier: Apache-2.0
"""The sequence of calls that all ranks share: give each call its op index, plan, submit and await it."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from railweave._native.agent import Failure, FailureKind
from railweave._native.collectives import Called, Collective, DType
from railweave.errors import explain
from railweave.hosts.arrays import Array
from railweave.hosts.capabilities import OP_NAMES
from railweave.hosts.errors import InvalidOption, RailDown
from railweave.hosts.failures import raise_failure

if TYPE_CHECKING:
    from railweave._native.agent import Agent, Change
    from railweave.hosts.health import Health
    from railweave.hosts.striping import CallKey, Plan, Planner
    from railweave.hosts.striping.splits import Part

NOTHING = np.empty(0)
KEPT = 64  # stored calls above which finished calls are removed
MOST_REPEATED = 1 << 18  # most bytes of a repeated call: the agent copies them while it holds the GIL
PIECE_S = 0.1  # while a rail is down, parts of at least twice this time are cut into pieces
NEWS_S = 0.5  # time for another rank that timed out at the same moment to report its reason
REMEMBERED = 1 << 16  # survey indices, which records omit; the agent keeps as many slices


class Changes(Sequence["Change"]):
    """All changes of rails so far. Changes that the planner has used are forgotten."""

    def __init__(self) -> None:
        """Begin without changes."""
        self._forgotten = 0
        self._held: list[Change] = []

    def __len__(self) -> int:
        """Return the number of all changes, the forgotten ones included."""
        return self._forgotten + len(self._held)

    def __getitem__(self, behind: Any) -> Any:
        """Return the changes of a slice `[known:]`."""
        return self._held[behind.start - self._forgotten :]

    def add(self, changes: Sequence[Change], planned_with: int) -> None:
        """Add the newest changes. Forget those with which a call has been planned."""
        planned_with = max(planned_with, self._forgotten)
        self._held, self._forgotten = [*self[planned_with:], *changes], planned_with


class CallSequence:
    """Submits the calls of all threads of this rank, one at a time. Keeps their arrays until they end.

    The plan of a call is a function of its index, the agreed changes of rails, and the results of surveys
    before that index. A call is planned for its index. It is planned again only if the ranks meanwhile agree
    on a change in force at that index. All ranks submit surveys behind the same calls. A call waits for a
    survey if its plan needs the result.
    """

    def __init__(self, agent: Agent, planner: Planner, health: Health, timeout_s: float) -> None:
        """Begin before the first call."""
        self._agent = agent
        self._planner = planner
        self._health = health
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._changes = Changes()
        self._arrays: dict[int, tuple[Array, Array]] = {}  # by op index: source and target
        self._surveys: dict[int, tuple[Array, Array]] = {}  # surveys whose result is not taken yet
        self._surveyed: deque[int] = deque(maxlen=REMEMBERED)
        self._survey_at: int | None = 0 if planner.opening else None  # op index of the survey to submit next
        self._repeated: tuple[Plan, ...] = ()  # plans of the calls that the agent repeats

    def submit(self, call: CallKey, source: Array, target: Array, *, start_now: bool) -> int:
        """Submit a call and return its op index. Raises InvalidOption if the agent rejects the call."""
        with self._lock:
            self._count_repeated()
            if len(self._arrays) > KEPT:
                self._drop_ended()
            if self._survey_at is not None:  # an interrupt prevented this survey earlier
                self._survey(start_now)
            op_index = self._place(self._arrays, call, source, target, start_now)
            if self._survey_at is not None:
                self._survey(start_now)
            plain = call[0] is Collective.ALL_REDUCE and call[4] is Called.AS_CARRIED
            if not start_now and plain and source.nbytes <= MOST_REPEATED:
                self._repeat(call, source)
        return op_index

    def _repeat(self, call: CallKey, source: Array) -> None:
        """Let the agent repeat this call for the following equal calls, as long as their plans are known."""
        plans, most = self._planner.ahead(self._agent.next_op(), call, self._changes)
        _, dtype, op, _, _, _ = call
        if most > 0 and dtype is not DType.BFLOAT16:  # has no buffer format: its arrays pass as bits
            self._repeated = plans
            ways, expected_s = [plan.parts for plan in plans], plans[0].expected_s
            name, changes = OP_NAMES[op], len(self._changes)
            self._agent.repeat(plans[0].call, name, source, ways, expected_s, changes, most)

    def _count_repeated(self) -> None:
        """Stop the agent from repeating calls, and count its calls in the planner."""
        calls = self._agent.stop_repeating()
        if calls:
            self._planner.repeated(self._agent.next_op(), self._repeated, calls)

    def count(self) -> None:
        """Bring the planner's counts up to date. Any thread may call it."""
        if self._lock.acquire(blocking=False):  # else the holder has counted
            try:
                self._count_repeated()
            finally:
                self._lock.release()

    def open(self) -> None:
        """Submit the opening survey, by which the ranks compare options and costs before their first call."""
        with self._lock:
            self._survey(start_now=True)

    def _survey(self, start_now: bool) -> None:
        """Submit the pending survey if the next op index belongs to it."""
        if self._survey_at is None:
            return
        if self._agent.next_op() == self._survey_at:
            self._surveyed.append(self._survey_at)
            self._place(self._surveys, None, NOTHING, NOTHING, start_now)
        self._survey_at = None

    def _plan_survey(self, op_index: int) -> tuple[Plan, Array, Array]:
        self._planner.observe(self._agent.drain_measurements())
        plan = self._planner.plan_survey(op_index, self._changes)
        mine = self._planner.survey_input()
        return plan, mine, mine.copy()

    def _place(  # noqa: PLR0912 - every call runs this: fewer function calls are faster
        self,
        kept: dict[int, tuple[Array, Array]],
        call: CallKey | None,
        source: Array,
        target: Array,
        start_now: bool,
    ) -> int:
        """Plan and submit. Try again if a change was unknown, or if no rail can carry the call yet.

        If `call` is None, submit a survey, with new arrays. Returns the op index. After the communicator has
        failed, returns an op index that holds the error.
        """
        end = time.monotonic() + self._timeout_s
        plan: Plan | None = None
        planned_with = 0  # changes
        while True:
            op_index, known = self._agent.next_op(), len(self._changes)
            failed = self._take_surveys(op_index, end)
            if failed is not None:
                return failed
            try:
                # Planning changes the planner. So a plan is kept unless a change affects this call.
                if plan is None or self._changed(op_index, planned_with):
                    if call is None:
                        plan, source, target = self._plan_survey(op_index)
                    else:
                        plan = self._planner.plan(op_index, call, self._changes)
                    planned_with = known
                kept[op_index] = (source, target)
                if plan.survey_after:
                    self._survey_at = op_index + 1
                parts, point = in_pieces(plan) if self._planner.reasons else plan.parts, (op_index, known)
                submitted = self._agent.submit(
                    point, plan.call, source, target, parts, start_now, plan.expected_s
                )
            except RailDown as down:
                plan = None
                self._await_change(down, end)
                self._plan_point(end, planned_with)
                continue
            except ValueError as error:
                kept.pop(op_index, None)
                raise InvalidOption(str(error)) from None
            except BaseException:
                if plan is not None and self._agent.next_op() > op_index:  # interrupted after the submission
                    self._planner.submitted(op_index, plan)
                else:
                    kept.pop(op_index, None)
                raise
            if submitted:
                self._planner.submitted(op_index, plan)
                return op_index
            if plan.survey_after:
                self._survey_at = None
            self._plan_point(end, planned_with)

    def _changed(self, op_index: int, known: int) -> bool:
        """Whether a change after the first `known` changes is in force for this call."""
        return any(change.from_op <= op_index for change in self._changes[known:])

    def _plan_point(self, end: float, planned_with: int) -> None:
        """Wait until the ranks agree on their rails and the agent has room. Then add the new changes."""
        try:
            self._agent.plan_point(_left_s(end))
        except TimeoutError:
            self._give_up(None)
        self._changes.add(self._agent.changes(len(self._changes)), planned_with)

    def _await_change(self, down: RailDown, end: float) -> None:
        """Wait until a rail is back, because no rail that is alive can carry the call."""
        if not self._agent.wait_change(len(self._changes), _left_s(end)):
            waited = f"{down.reason}; not back within {self._timeout_s:g} s (timeout_s)"
            self._agent.fail(Failure(FailureKind.RAIL_DOWN, -1, waited, down.rail))
        raise_failure(self._agent.failure())

    def _take_surveys(self, op_index: int, end: float) -> int | None:
        """Wait for the surveys that the plan of this call needs.

        Returns the index of a failed survey, if any. Then the call cannot be planned and has the same error.
        """
        while (survey := self._planner.survey_index(op_index)) is not None:
            if not self._agent.wait(survey, _left_s(end)):
                self._give_up(survey)
            if self._agent.failure_of(survey) is not None:
                return survey
            self._planner.take_survey(survey, self._surveys[survey][1])
            del self._surveys[survey]
        return None

    def _drop_ended(self) -> None:
        """Release the arrays of calls that have ended without a `wait`."""
        for op_index in [index for index in list(self._arrays) if self._agent.done(index)]:
            self._arrays.pop(op_index, None)

    # ------------------------------------------------------------ waiting

    def wait(self, op_index: int, timeout_s: float | None) -> None:
        """Wait for the end of a call, and raise its error, if any.

        Raises TimeoutError after `timeout_s`. Without it, the sequence's timeout applies and ends everything.
        """
        if not self._agent.wait(op_index, self._timeout_s if timeout_s is None else timeout_s):
            if timeout_s is not None:
                raise TimeoutError(
                    explain(
                        f"the call has not completed within {timeout_s:g} s, and goes on",
                        "the end of the call by then",
                        "wait again with a longer timeout",
                    )
                )
            overdue = self._health.overdue(op_index)
            # Another rank that timed out too may know the cause. Wait for its report first.
            if overdue.kind is not FailureKind.INTERNAL or not self._agent.wait(op_index, NEWS_S):
                self._agent.fail(overdue)
        self._arrays.pop(op_index, None)
        failure = self._agent.failure_of(op_index)
        if failure is not None:
            raise_failure(failure)

    def done(self, op_index: int) -> bool:
        """Whether a call has ended."""
        return bool(self._agent.done(op_index))

    def surveyed(self) -> Collection[int]:
        """Return the op indices of surveys, as far back as they are remembered."""
        return frozenset(self._surveyed)

    def settle(self, timeout_s: float) -> None:
        """Wait for surveys in flight: they cannot end on other ranks without this rank."""
        end = time.monotonic() + timeout_s
        for survey in list(self._surveys):
            if not self._agent.wait(survey, _left_s(end)):
                return

    def _give_up(self, op_index: int | None) -> NoReturn:
        """Fail the agent because the sequence timed out, and raise its failure."""
        failure = self._health.overdue(op_index)
        self._agent.fail(failure)
        raise_failure(self._agent.failure())
        raise AssertionError("an agent that has failed says why")


def in_pieces(plan: Plan) -> Sequence[Part]:
    """Return the parts of a plan, long parts in pieces: a rail that comes back can take remaining pieces."""
    pieces = max(1, int(plan.expected_s / PIECE_S))
    return [
        (rail, begin, end - begin)
        for rail, first, count in plan.parts
        for begin, end in pairwise(first + count * number // pieces for number in range(pieces + 1))
        if end > begin
    ]


def _left_s(end: float) -> float:
    return max(0.0, end - time.monotonic())
