# SPDX-License-Identifier: Apache-2.0
"""Rails die during calls and come back. Every rank gets the right numbers, and the other rails continue."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection

import numpy as np
import pytest
from protocol.calls import Call, integer_call, total
from protocol.recovering import DEADLINE_S, Job, Rank

from railweave._native.agent import Agent
from railweave._native.agent import Call as NativeCall
from railweave._native.collectives import Collective, DType, ReduceOp

COUNTS = [10, 1000, 100_000]


def sums(rank: Rank, calls: range, after: dict[int, str] | None = None) -> None:
    """Sum on all ranks, and check each sum. After some calls rank 1 reports an obstacle on rail 1."""
    for number in calls:
        x = np.full(COUNTS[number % 3], rank.rank + number, np.float32)
        assert (rank.all_reduce(x) == sum(r + number for r in range(rank.size))).all()
        if after and rank.rank == 1 and number in after:
            rank.agent.set_obstacle(1, after[number])


@pytest.mark.parametrize("size", [2, 8])  # with 8 ranks, repair channels connect only some pairs
def test_a_rail_with_an_obstacle_is_left_and_used_again(size: int) -> None:
    with Job(size) as job:
        job.run(lambda rank: sums(rank, range(20)))
        for rank in job.ranks:
            assert (rank.agent.changes(0), rank.agent.next_op()) == ([], 20)
            assert [state.state for state in rank.agent.rail_states()] == ["up", "up"]
        job.run(lambda rank: sums(rank, range(20, 60), {30: "it is tested"}))
        job.run(lambda rank: rank.until(lambda: rank.alive(1 << 30) == [0]))
        for rank in job.ranks:
            (change,) = rank.agent.changes(0)
            down = rank.agent.rail_states()[1]
            assert (down.state, down.failures) == ("down", 1)
            assert "it is tested" in down.reason
            assert change.alive == [True, False]
            assert "it is tested" in change.reasons[1]
        job.run(lambda rank: sums(rank, range(60, 120), {70: ""}))
        job.run(lambda rank: rank.until(lambda: rank.alive(1 << 30) == [0, 1]))
        job.run(lambda rank: sums(rank, range(120, 180)))
        for rank in job.ranks:
            up = rank.agent.rail_states()[1]
            assert (up.state, up.incarnation, up.failures) == ("up", 1, 1)
            assert "it is tested" in up.last_failure
        changes = [[(c.from_op, c.alive) for c in rank.agent.changes(0)] for rank in job.ranks]
        assert changes == [changes[0]] * size
        for rank in job.ranks:
            assert [change.alive for change in rank.agent.changes(1)] == [[True, True]]
            assert len(rank.agent.changes(0)) == 1, "the first change has not been forgotten"
            assert rank.agent.plan_point(DEADLINE_S) == (180, 2)


def test_calls_wait_for_memory_that_is_kept_for_a_late_rank() -> None:
    """A single call may exceed the bound. The next calls wait until all ranks have completed earlier ones."""
    with Job(2, most_kept_bytes=1 << 20) as job:
        x = np.ones(1 << 20, np.int8)
        call = NativeCall(DType.INT8, ReduceOp.SUM, x.size)
        first = job.ranks[0]
        outs = [np.empty_like(x) for _ in range(3)]
        for out in outs[:2]:
            first.submit(call, x, out)
        assert not first.agent.submit((2, 0), call, x, outs[2], [(0, 0, x.size)])
        with pytest.raises(TimeoutError, match="completed earlier calls"):
            first.agent.plan_point(0.05)

        def rest(rank: Rank) -> None:
            mine = [outs[2]] if rank is first else [np.empty_like(x) for _ in range(3)]
            ops = [rank.submit(call, x, out) for out in mine]
            rank.wait(ops[-1])
            assert all((out == 2).all() for out in mine)

        job.run(rest)


@pytest.mark.parametrize("share", [0.52, 1.2, 3.0])
def test_a_large_call_and_a_survey_leave_room_for_the_next_call(share: float) -> None:
    """Each call needs `share` of the bound. Requested sizes count, and the largest call does not count."""
    with Job(2, most_kept_bytes=1 << 20) as job:
        sizes = [int(share * (1 << 20)), 512, int(share * (1 << 20))]
        calls = [NativeCall(DType.INT8, ReduceOp.SUM, size) for size in sizes]
        arrays = [[np.ones(size, np.int8) for size in sizes] for _ in job.ranks]
        for rank in job.ranks:  # rank 0 submits all calls before rank 1 begins
            ops = [rank.submit(call, x, x) for call, x in zip(calls, arrays[rank.rank], strict=True)]
        for rank in job.ranks:
            rank.wait(ops[-1])
            assert all((x == 2).all() for x in arrays[rank.rank])


def test_what_makes_no_sense_is_refused() -> None:
    with Job(2) as job:
        agent = job.ranks[0].agent
        x = np.ones(4, np.float32)
        with pytest.raises(RuntimeError, match="call #3 is not the next one, which is #0"):
            agent.submit((3, 0), NativeCall(DType.FLOAT32, ReduceOp.SUM, 4), x, x, [(0, 0, 4)])
        with pytest.raises(ValueError, match="no rail 7"):
            agent.set_obstacle(7, "there is none")
        assert agent.wait_change(0, 0.0) is False


@pytest.mark.parametrize("submitted", [False, True])
def test_rails_change_while_a_rank_plans(submitted: bool) -> None:
    """A rank may plan for long if another thread holds the interpreter while a rail dies.

    The others do not wait for it. A call that they have submitted keeps its plan.
    """
    with Job(2) as job:
        planning, other = job.ranks
        x, call = np.ones(4, np.float32), NativeCall(DType.FLOAT32, ReduceOp.SUM, 4)
        out, theirs = np.empty_like(x), np.empty_like(x)
        op, known = planning.agent.plan_point(DEADLINE_S)
        ahead = other.submit_at([(1, 0, 4)], call, x, theirs) if submitted else None
        other.agent.set_obstacle(1, "in the middle of planning")
        for rank in job.ranks:
            rank.until(lambda rank=rank: rank.alive(1 << 30) == [0])  # type: ignore[misc]
        (change,) = planning.agent.changes(known)
        assert change.from_op == op + submitted
        assert not planning.agent.submit((op, known), call, x, out, [(1, 0, 4)])
        assert planning.agent.plan_point(DEADLINE_S) == (op, known + 1)
        assert planning.agent.submit((op, known + 1), call, x, out, [(int(submitted), 0, 4)])
        other.wait(other.submit_at([(0, 0, 4)], call, x, theirs) if ahead is None else ahead)
        planning.wait(op)
        assert (out == 2).all()


def test_recovery_is_refused_where_it_cannot_be() -> None:
    agent = Agent(0, 2)
    agent.set_secret(bytes(32))
    agent.add_tcp("tcp", "127.0.0.1", "lo")
    with pytest.raises(RuntimeError, match="after its ports"):
        agent.enable_recovery([], [])
    port = agent.open_control(0)
    with pytest.raises(RuntimeError, match="rail by rail"):
        agent.open_control(0)
    with pytest.raises(RuntimeError, match="two rails and two ranks"):
        agent.enable_recovery([[("127.0.0.1", port)] * 2], [0])
    agent.add_tcp("other", "127.0.0.1", "lo")
    agent.open_control(1)
    with pytest.raises(ValueError, match="members of 1 rails instead of 2"):
        agent.enable_recovery([[("127.0.0.1", port)] * 2], [0])
    agent.close(0)


@pytest.mark.parametrize("late", [0, 1])
def test_a_rail_that_comes_back_takes_over_what_others_have_not_begun(late: int) -> None:
    """The rail takes over pieces also of a call that one rank has not made yet."""
    x = np.arange(300_000, dtype=np.int32)
    parts = [(0, 30_000 * number, 30_000) for number in range(10)]
    outs = [np.empty_like(x) for _ in range(2)]

    def make(rank: Rank) -> int:
        return rank.submit_at(parts, NativeCall(DType.INT32, ReduceOp.SUM, x.size), x, outs[rank.rank])

    def call(rank: Rank) -> None:
        rank.until(lambda: rank.alive(0) == [0])
        op = None if rank.rank == late else make(rank)
        job.meet()
        rank.agent.set_obstacle(1, "")
        rank.until(lambda: rank.alive(1) == [0, 1])
        rank.wait(make(rank) if op is None else op)
        assert (outs[rank.rank] == 2 * x).all()
        carried = [(record.rail, record.repair) for record in rank.agent.drain_records()]
        assert carried.count((0, False)) <= 2
        assert {(0, True), (1, True)} <= set(carried)

    with Job(2) as job:
        job.ranks[0].agent.set_obstacle(1, "it is tested")
        job.run(call)


# ------------------------------------------------------------ every collective

IN_FLIGHT = 6  # calls that are submitted before the first wait
CALLS = 24
ALWAYS = 1 << 30  # a call far in the future


def drawn(seed: int, calls: range, size: int) -> list[Call]:
    random = np.random.default_rng(seed)
    return [
        integer_call(
            *(number, size, list(Collective)[random.integers(4)]),
            count=int(random.choice([1, 500, 30_000, 120_000])),
            root=int(random.integers(size)),
            in_place=bool(random.integers(2)),
        )
        for number in calls
    ]


def make_all(rank: Rank, todo: list[Call], lost: Collection[int] = (), back: Collection[int] = ()) -> None:
    """Make the calls, several in flight. Rank 1 reports that rails have an obstacle, or have none any more.

    The rails `lost` die in the middle of a large call: rank 0 makes this call after the others, when the
    rails are dead.
    """
    pending: deque[tuple[Call, int]] = deque()

    def submit(call: Call) -> None:
        native = NativeCall(DType.INT32, ReduceOp.SUM, call.whole, call.collective, call.root)
        pending.append((call, rank.submit(native, call.given[rank.rank], call.outputs[rank.rank])))

    def finish() -> None:
        call, op = pending.popleft()
        rank.wait(op)
        wanted = call.expected(total)
        call.check(rank.rank, wanted[rank.rank], call.collective)

    for place, call in enumerate(todo):
        middle = place == len(todo) // 2
        if middle and rank.rank == 0:
            rank.until(lambda: not {*lost} & {*rank.alive(ALWAYS)})
        submit(call)
        if middle and rank.rank == 1:
            for rail in lost:
                rank.agent.set_obstacle(rail, "it is tested")
            for rail in back:
                rank.agent.set_obstacle(rail, "")
        if len(pending) == IN_FLIGHT:
            finish()
    while pending:
        finish()


@pytest.mark.parametrize(
    ("size", "collective"), [(2, Collective.ALL_REDUCE), *((4, collective) for collective in Collective)]
)
def test_all_collectives_while_rails_come_and_go(size: int, collective: Collective) -> None:
    """Two rails die and come back, then another one. Deaths interrupt a call of the given collective."""
    with Job(size, rails=3) as job:
        for seed, lost in enumerate(((1, 2), (0,))):
            going, coming = (drawn(seed, range(first, first + CALLS), size) for first in (0, CALLS))
            going[CALLS // 2] = integer_call(
                CALLS // 2, size, collective, 120_000, root=1, in_place=bool(seed)
            )
            job.run(lambda rank: make_all(rank, going, lost=lost))  # noqa: B023
            job.run(lambda rank: make_all(rank, coming, back=lost))  # noqa: B023
            job.run(lambda rank: rank.until(lambda: rank.alive(ALWAYS) == [0, 1, 2]))
        for rank in job.ranks:
            assert all(state.failures >= 1 for state in rank.agent.rail_states())
            assert any(record.repair for record in rank.agent.drain_records())
