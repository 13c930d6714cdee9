# SPDX-License-Identifier: Apache-2.0
"""The order of calls and surveys, and the effect of a change of rails on this order."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from railweave._native.agent import Call, Failure, FailureKind
from railweave._native.collectives import Called, Collective, DType, ReduceOp
from railweave.hosts.decisions import Tally
from railweave.hosts.errors import InvalidOption, RailDown, RailweaveError
from railweave.hosts.sequence import MOST_REPEATED, CallSequence

TIMEOUT_S = 30.0
CALL = Call(DType.INT32, ReduceOp.SUM, 4)
SUM = (Collective.ALL_REDUCE, DType.INT32, ReduceOp.SUM, 0, Called.AS_CARRIED, 4)


@dataclass(frozen=True)
class FakeChange:
    from_op: int


@dataclass(frozen=True)
class FakePlan:
    call: Call = CALL
    parts: Sequence[tuple[int, int, int]] = ((0, 0, 4),)
    tally: Tally = field(default_factory=Tally)
    expected_s: float = 0.0
    survey_after: bool = False


class FakeAgent:
    """An agent that takes calls in order. Each call must be planned from the current point."""

    def __init__(self) -> None:
        self.taken: list[int] = []
        self.parts: list[Any] = []  # of each call
        self.waited: list[int] = []
        self.failed: Failure | None = None
        self.all_changes: list[FakeChange] = []
        self.stuck = False
        self.refuse_with: Exception | None = None
        self.before_submit: Callable[[], None] = lambda: None
        self.after_submit: Callable[[], None] = lambda: None
        self.changed = threading.Event()
        self.may_repeat = False
        self.repeated = 0

    def plan_point(self, timeout_s: float) -> tuple[int, int]:
        if self.stuck:
            raise TimeoutError
        return len(self.taken), len(self.all_changes)

    def next_op(self) -> int:
        return len(self.taken)

    def changes(self, since: int) -> list[FakeChange]:
        return self.all_changes[since:]

    def change(self, from_op: int) -> None:
        self.all_changes.append(FakeChange(from_op))
        self.changed.set()

    def wait_change(self, since: int, timeout_s: float) -> bool:
        return self.changed.wait(timeout_s) and len(self.all_changes) > since

    def submit(self, planned_from: tuple[int, int], call: Call, source: Any, target: Any, *_: Any) -> bool:
        self.before_submit()
        if self.refuse_with:
            raise self.refuse_with
        op_index, changes = planned_from
        assert op_index == len(self.taken)
        if self.stuck or changes != len(self.all_changes):
            return False
        self.taken.append(op_index)
        self.parts.append(_[0])
        np.copyto(target, source)
        self.after_submit()
        return True

    def repeat(self, *_: Any) -> None:
        self.may_repeat = True

    def stop_repeating(self) -> int:
        self.may_repeat, calls, self.repeated = False, self.repeated, 0
        return calls

    def again(self) -> None:
        """Repeat a call without the sequence, as communicators do."""
        assert self.may_repeat
        self.taken.append(len(self.taken))
        self.repeated += 1

    def wait(self, op_index: int, timeout_s: float) -> bool:
        self.waited.append(op_index)
        return not self.stuck

    def done(self, op_index: int) -> bool:
        return True

    def fail(self, failure: Failure) -> None:
        self.failed = self.failed or failure

    def failure(self) -> Failure | None:
        return self.failed

    def failure_of(self, op_index: int) -> Failure | None:
        return self.failed

    def drain_measurements(self) -> list[str]:
        return ["slices"]


class FakePlanner:
    """A planner with a survey after every `period` calls. It needs the result two calls later."""

    def __init__(self, period: int = 0, opening: bool = False) -> None:
        self.opening = opening
        self.period = period
        self.log: list[Any] = []
        self.pending: list[int] = []
        self.without_rails = 0  # changes until there is a rail
        self.users = 0
        self.reasons: dict[int, str] = {}
        self.expected_s = 0.0

    def plan(self, op_index: int, *_: Any) -> FakePlan:
        changes = _[-1]
        if len(changes) < self.without_rails:
            raise RailDown("tcp", "its link is cut")
        self.log.append(("plan", op_index, len(changes)))
        surveyed = bool(self.period) and (self.users + 1) % self.period == 0
        return FakePlan(expected_s=self.expected_s, survey_after=surveyed)

    def ahead(self, op_index: int, call: object, changes: Sequence[Any]) -> tuple[tuple[FakePlan, ...], int]:
        self.log.append(("ahead", op_index, len(changes)))
        return (FakePlan(),), 0 if self.period else 10

    def repeated(self, op_index: int, plans: Sequence[FakePlan], calls: int) -> None:
        self.log.append(("repeated", op_index, calls))

    def plan_survey(self, op_index: int, changes: Sequence[Any]) -> FakePlan:
        self.log.append(("survey", op_index, len(changes)))
        return FakePlan()

    def survey_input(self) -> Any:
        return np.full(64, len(self.log), np.int32)

    def observe(self, records: Any) -> None:
        self.log.append(("observe", *records))

    def submitted(self, op_index: int, plan: FakePlan) -> None:
        kind = self.log[-1][0]
        if kind == "survey":
            self.pending.append(op_index)
        else:
            self.users += 1
        self.log.append(("submitted", op_index))

    def survey_index(self, op_index: int) -> int | None:
        return next((index for index in self.pending if index + 2 <= op_index), None)

    def take_survey(self, op_index: int, result: Any) -> None:
        assert result.shape == (64,)
        self.pending.remove(op_index)
        self.log.append(("take", op_index))


class FakeHealth:
    kind = FailureKind.RAIL_DOWN

    def overdue(self, op_index: int | None) -> Failure:
        return Failure(self.kind, -1, f"waited for {op_index}", "tcp")


class World:
    def __init__(self, **planner: Any) -> None:
        self.agent, self.planner = FakeAgent(), FakePlanner(**planner)
        self.health = FakeHealth()
        self.calls = CallSequence(self.agent, self.planner, self.health, TIMEOUT_S)  # type: ignore[arg-type]

    def call(self) -> int:
        x = np.ones(4, np.int32)
        return self.calls.submit(SUM, x, x.copy(), start_now=False)

    def did(self, *kinds: str) -> list[Any]:
        return [entry for entry in self.planner.log if entry[0] in kinds]


def test_calls_and_surveys_share_one_count() -> None:
    world = World(period=2)
    assert [world.call() for _ in range(5)] == [0, 1, 3, 4, 6]
    assert world.did("survey", "take") == [("survey", 2, 0), ("take", 2), ("survey", 5, 0)]
    assert world.agent.waited == [2]
    assert set(world.calls.surveyed()) == {2, 5}


def test_long_parts_go_in_pieces_while_a_rail_is_out() -> None:
    world = World()
    world.planner.expected_s = 0.25
    world.call()
    world.planner.reasons = {1: "its link is cut"}
    world.call()
    assert [list(parts) for parts in world.agent.parts] == [[(0, 0, 4)], [(0, 0, 2), (0, 2, 2)]]


def test_the_ranks_compare_before_the_first_call() -> None:
    world = World(opening=True)
    world.calls.open()
    assert world.call() == 1
    world.call()
    assert world.did("survey", "plan", "take") == [
        ("survey", 0, 0),
        ("plan", 1, 0),
        ("take", 0),
        ("plan", 2, 0),
    ]


def test_each_place_is_submitted_with_all_changes_before_it() -> None:
    world = World(period=1)
    world.call()
    world.agent.change(2)
    world.call()
    assert world.did("plan", "survey", "submitted") == [
        *(("plan", 0, 0), ("submitted", 0), ("survey", 1, 0), ("submitted", 1)),
        *(("plan", 2, 0), ("plan", 2, 1), ("submitted", 2), ("survey", 3, 1), ("submitted", 3)),
    ]


def test_changes_with_which_a_call_has_been_planned_are_forgotten() -> None:
    world = World()
    for op_index in range(100):
        world.agent.change(op_index)
        world.call()
    assert world.did("plan")[-1] == ("plan", 99, 100)
    changes = [weakref.ref(change) for change in world.agent.all_changes]
    world.agent.all_changes.clear()
    gc.collect()
    assert sum(change() is not None for change in changes) <= 2


def test_calls_that_the_agent_repeats_are_counted_before_the_next_one_is_planned() -> None:
    world = World()
    world.call()
    world.agent.again()
    world.agent.again()
    assert world.call() == 3
    assert world.did("plan", "repeated") == [("plan", 0, 0), ("repeated", 3, 2), ("plan", 3, 0)]
    world.agent.again()
    world.calls.count()
    world.calls.count()
    assert world.did("repeated") == [("repeated", 3, 2), ("repeated", 5, 1)]
    assert not world.agent.may_repeat


def test_nothing_is_repeated_without_a_plan_behind_a_call_in_flight_or_of_another_kind() -> None:
    world = World(period=100)
    world.call()
    assert not world.agent.may_repeat
    world = World()
    x = np.ones(4, np.int32)
    for call, start_now in ((SUM, True), ((Collective.ALL_GATHER, *SUM[1:]), False)):
        world.calls.submit(call, x, x.copy(), start_now=start_now)
        assert not world.agent.may_repeat
    for count, repeated in ((MOST_REPEATED // 4, True), (MOST_REPEATED // 4 + 1, False)):
        x = np.ones(count, np.int32)
        world.calls.submit(SUM, x, x.copy(), start_now=False)
        assert world.agent.may_repeat is repeated


def interrupted_by_a_change(world: World, from_op: int, then: Callable[[], None] = lambda: None) -> None:
    """Let the ranks agree on a change between the next call's plan and its submission."""

    def change() -> None:
        world.agent.before_submit = lambda: None
        world.agent.change(from_op)
        then()

    world.agent.before_submit = change


@pytest.mark.parametrize(
    ("from_op", "plans"), [(1, [("plan", 0, 0)]), (0, [("plan", 0, 0), ("plan", 0, 1)])], ids=["later", "now"]
)
def test_a_call_is_planned_again_only_if_the_change_is_in_force_from_it(
    from_op: int, plans: list[Any]
) -> None:
    """Other ranks may have submitted the call. A second plan would then change only this planner."""
    world = World(period=1)
    interrupted_by_a_change(world, from_op)
    assert world.call() == 0
    assert world.did("plan", "submitted") == [*plans, ("submitted", 0), ("submitted", 1)]
    assert world.did("survey") == [("survey", 1, 1)]


def test_what_follows_a_plan_is_asked_with_the_changes_that_came_while_it_was_submitted() -> None:
    """Otherwise a late rank would repeat calls after the change with the plan from before the change."""
    world = World()
    world.agent.before_submit = lambda: None if world.agent.all_changes else world.agent.change(1)
    world.call()
    assert world.did("plan", "ahead") == [("plan", 0, 0), ("ahead", 1, 1)]


def test_a_survey_is_submitted_only_behind_the_plan_that_holds() -> None:
    world = World(period=1)

    def no_more_surveys() -> None:
        world.planner.period = 0

    interrupted_by_a_change(world, 0, no_more_surveys)
    assert world.call() == 0
    assert world.call() == 1
    assert world.did("survey") == []


def test_an_interrupt_between_a_call_and_its_survey_leaves_the_survey_its_place() -> None:
    world = World(period=1)

    def interrupt_the_survey() -> None:
        if len(world.agent.taken) == 1:
            world.agent.before_submit = lambda: None
            raise KeyboardInterrupt

    world.agent.before_submit = interrupt_the_survey
    with pytest.raises(KeyboardInterrupt):
        world.call()
    assert world.call() == 2
    assert [entry[1] for entry in world.did("submitted")] == [0, 1, 2, 3]


def test_an_interrupt_right_behind_a_submission_leaves_the_rails_their_arrays() -> None:
    world = World()

    def interrupt() -> None:
        world.agent.after_submit = lambda: None
        raise KeyboardInterrupt

    world.agent.after_submit = interrupt
    x = np.ones(4, np.int32)
    used = weakref.ref(x)
    with pytest.raises(KeyboardInterrupt):
        world.calls.submit(SUM, x, x, start_now=False)
    del x
    gc.collect()
    assert used() is not None, "the rails write into memory that is free"
    assert world.did("submitted") == [("submitted", 0)]
    assert world.call() == 1


def test_threads_submit_one_after_the_other() -> None:
    world = World(period=3)
    with ThreadPoolExecutor(8) as pool:
        indices = list(pool.map(lambda _: world.call(), range(300)))
    assert sorted([*indices, *world.calls.surveyed()]) == list(range(len(world.agent.taken)))
    assert len(world.calls.surveyed()) == 100


def test_what_the_agent_refuses_takes_no_place() -> None:
    world = World(period=1)
    world.agent.refuse_with = ValueError("out overlaps the input: expected other memory; pass another out")
    with pytest.raises(InvalidOption, match="overlaps"):
        world.call()
    world.agent.refuse_with = None
    assert world.call() == 0
    assert world.did("survey") == [("survey", 1, 0)]


def test_a_call_that_no_living_rail_can_carry_waits_for_one() -> None:
    world = World()
    world.planner.without_rails = 1
    timer = threading.Timer(0.05, world.agent.change, [0])
    timer.start()
    assert world.call() == 0
    timer.join()
    assert world.did("plan") == [("plan", 0, 1)]


def test_without_a_rail_the_deadline_ends_everything() -> None:
    world = World()
    world.calls = CallSequence(world.agent, world.planner, FakeHealth(), 0.01)  # type: ignore[arg-type]
    world.planner.without_rails = 1
    with pytest.raises(RailDown, match=r"its link is cut; not back within 0.01 s \(timeout_s\)"):
        world.call()


def test_ranks_that_never_agree_end_with_the_deadline() -> None:
    world = World()
    world.agent.stuck = True
    with pytest.raises(RailDown, match="waited for None"):
        world.call()


def test_a_call_that_needs_a_survey_that_has_failed_fails_alike() -> None:
    world = World(period=1)
    world.call()
    world.agent.failed = Failure(FailureKind.INTERNAL, -1, "it was killed")
    needing = world.call()
    with pytest.raises(RailweaveError, match="it was killed"):
        world.calls.wait(needing, None)


def test_settling_waits_for_surveys_in_flight_only() -> None:
    world = World(period=2)
    world.call()
    world.calls.settle(TIMEOUT_S)
    assert world.agent.waited == []
    world.call()
    world.calls.settle(TIMEOUT_S)
    assert world.agent.waited == [2]


@pytest.mark.parametrize(
    ("known", "told"), [(FailureKind.INTERNAL, "rank 3 has died"), (FailureKind.RAIL_DOWN, "waited for 0")]
)
def test_what_another_rank_tells_when_the_time_is_up_is_raised(known: FailureKind, told: str) -> None:
    """The ranks' deadlines end together. A rank that knows the reason may report it a little later."""
    world = World()
    world.health.kind = known  # INTERNAL: this rank does not know why
    waits: list[float] = []

    def wait(_: int, timeout_s: float) -> bool:
        waits.append(timeout_s)
        if len(waits) > 1:
            world.agent.fail(Failure(FailureKind.PEER_LOST, 3, "rank 3 has died"))
        return len(waits) > 1

    world.agent.wait = wait  # type: ignore[method-assign]
    with pytest.raises(RailweaveError, match=told):
        world.calls.wait(0, None)
    assert waits[0] == TIMEOUT_S
    assert len(waits) == (2 if known is FailureKind.INTERNAL else 1)
