# SPDX-License-Identifier: Apache-2.0
"""All ranks split interrupted calls in the same way, and repair them, while rails die and come back."""

from __future__ import annotations

import resource
from collections import deque
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from protocol.repair_world import World, reach_of

from railweave._native.agent import Call
from railweave._native.collectives import Collective, DType, ReduceOp
from railweave._rigs.calls import REPAIR_BYTES, Calls, Slice
from railweave._rigs.recovery import Commit, Reach

CALLS = 24
MS = 1_000_000  # nanoseconds


def step(world: World, rank: int, random: Random) -> bool:
    """Do one random action on one rank. Return whether an action was possible."""
    calls = world.calls[rank]
    channels = [(rail, repair) for rail in range(world.rails) for repair in (False, True)]
    random.shuffle(channels)
    choices = ["submit", "take", "finish", "finish", "deliver", "decide", "release"]
    random.shuffle(choices)
    for choice in choices:
        if choice == "submit" and world.frozen[rank] is None and calls.next < CALLS:
            world.submit(rank)
            return True
        if choice == "deliver" and world.deliver(rank):
            return True
        if choice == "decide" and world.next_alive is not None:
            decided = len(world.commits) > world.applied[rank]
            if decided or world.may_freeze(rank):
                (world.apply if decided else world.freeze)(rank)
                return True
        if choice == "release" and world.may_release(rank) and random.random() < 0.2:
            calls.release(random.randint(0, world.completed()))
            return True
        for channel in channels if choice in ("take", "finish") else ():
            if world.open(rank, channel) and getattr(world, choice)(rank, channel):
                return True
    return False


def run(size: int, rails: int, decisions: int, random: Random) -> World:
    """Make CALLS calls on every rank while rails die and come back."""
    world = World(size, rails, random)
    pace = [random.random() ** 2 + 0.02 for _ in range(size)]  # some ranks are far behind
    idle = 0
    while not all(calls.completed == CALLS for calls in world.calls) or not world.settled():
        if world.settled() and len(world.commits) < decisions and random.random() < 0.03:
            world.begin(random.randrange(1, 1 << rails))
        moved = step(world, random.choices(range(size), pace)[0], random)
        idle = 0 if moved else idle + 1
        assert idle < 5000, "nothing moves any more"
    return world


@given(
    size=st.integers(2, 4), rails=st.integers(2, 3), decisions=st.integers(0, 6), seed=st.integers(0, 1 << 32)
)
@settings(max_examples=20, deadline=None)
def test_all_ranks_get_all_results(size: int, rails: int, decisions: int, seed: int) -> None:
    world = run(size, rails, decisions, Random(seed))
    assert len(world.made) == CALLS
    for call in world.made.values():
        assert call.spoilt == set(range(size))
        call.check_spoilt()


def commit(alive: int, main: dict[int, Reach], repair: dict[int, Reach] | None = None) -> Commit:
    """Return a decision after one call on four rails."""
    decision = Commit()
    decision.epoch, decision.alive, decision.boundary = 1, alive, 1
    decision.main = [main.get(rail, Reach()) for rail in range(4)]
    decision.repair = [(repair or {}).get(rail, Reach()) for rail in range(4)]
    return decision


def submit(
    calls: Calls,
    x: NDArray[np.int32],
    parts: list[tuple[int, int, int]],
    expected_ms: int = 0,
    now_ms: int = 0,
) -> NDArray[np.int32]:
    """Submit a sum of `x`. Return the output."""
    out = np.zeros_like(x)
    calls.submit(Call(DType.INT32, ReduceOp.SUM, x.size), x, out, parts, expected_ms * MS, now_ms * MS)
    return out


def repairs(calls: Calls) -> dict[int, list[Slice]]:
    """Take all slices that wait on the repair channels, by rail."""
    taken = {rail: list(iter(lambda rail=rail: calls.take(rail, True), None)) for rail in range(4)}
    return {rail: slices for rail, slices in taken.items() if slices}


@pytest.mark.parametrize(
    ("rates", "alive", "expected"),
    [
        ([100, 100, 50, 100], 0b1110, {1: 40_000, 2: 20_000, 3: 40_000}),
        ([100, 100, 50, 100], 0b0100, {2: 100_000}),
    ],
)
def test_repair_is_spread_over_all_rails_by_their_rates(
    rates: list[int], alive: int, expected: dict[int, int]
) -> None:
    """Rails that the call did not use carry repairs, too."""
    calls = Calls(0, 3, rates)
    x = np.ones(200_000, np.int32)
    submit(calls, x, [(0, 0, 100_000), (1, 100_000, 100_000)])
    calls.apply(commit(alive, {1: reach_of([1, 1, 1])}))
    counts = {rail: sum(piece.count for piece in slices) for rail, slices in repairs(calls).items()}
    assert counts == expected


def test_a_repair_resumes_where_the_ranks_are_when_another_rail_fails() -> None:
    """Skip pieces that all ranks have. Fetch pieces that one rank has. Reduce the rest."""
    pieces = 12  # on each of the rails 1 to 3
    ended = [[pieces, 5, 0], [pieces, 9, 4], [pieces, 7, 0]]  # by rank and rail
    ranks = [Calls(rank, len(ended), [100] * 4) for rank in range(len(ended))]
    x = np.ones(3 * pieces * REPAIR_BYTES // 4, np.int32)
    for calls, many in zip(ranks, ended, strict=True):
        submit(calls, x, [(0, 0, x.size)])
        calls.apply(commit(0b1110, {0: reach_of([0, 0, 0])}))
        slices = repairs(calls)
        assert {rail: len(taken) for rail, taken in slices.items()} == dict.fromkeys((1, 2, 3), pieces)
        for rail, taken in slices.items():
            for piece in taken[: many[rail - 1]]:
                calls.finish(rail, True, piece.id)
    positions = [calls.prepare(0b1010).repair for calls in ranks]
    reaches = {rail: reach_of([position[rail] for position in positions]) for rail in (1, 2, 3)}
    for calls in ranks:
        calls.apply(commit(0b1010, {}, reaches))
        again = [piece for taken in repairs(calls).values() for piece in taken]
        fetched = [piece for piece in again if piece.collective == Collective.BROADCAST]
        assert {piece.root for piece in fetched} == {1}
        per_piece = x.size // (3 * pieces)
        assert sum(piece.count for piece in fetched) == (9 - 5 + 4) * per_piece
        assert sum(piece.count for piece in again) == (2 * pieces - 5) * per_piece


def test_what_a_rail_has_not_begun_goes_to_one_that_comes_back() -> None:
    """The rail that comes back takes the pieces that no rank has reached, also on a rank that calls later."""
    x = np.ones(100_000, np.int32)
    parts = [(0, 10_000 * number, 10_000) for number in range(10)]
    ranks = [Calls(rank, 3, [100] * 4) for rank in range(3)]
    begun: list[list[Slice]] = [[] for _ in ranks]

    def begin(rank: int) -> None:
        begun[rank] += iter(lambda: ranks[rank].take(0, False), None)

    positions = []
    for rank, (calls, ended) in enumerate(zip(ranks, (3, 1, 0), strict=True)):
        without_two = commit(0b0011, {})
        without_two.boundary = 0
        calls.apply(without_two)
        if rank < 2:
            submit(calls, x, parts, 1000)
        begin(rank)
        for piece in range(ended):
            calls.finish(0, False, begun[rank][piece].id)
            begin(rank)
        positions.append(calls.prepare(0b0111).main)
        if rank < 2:
            assert len(begun[rank]) == ended + 2  # a rail gets two pieces at a time
            front = calls.front(0, False)
            assert front is not None
            assert (front.alone, front.expected_ns) == (True, 100 * MS)
            calls.finish(0, False, begun[rank][ended].id)
            begin(rank)  # the reported position stays valid
    assert positions == [[5, 0, 5, 1], [3, 0, 7, 1], [0, 0, 0, 0]]
    reaches = {rail: reach_of([position[rail] for position in positions]) for rail in range(3)}
    for rank, calls in enumerate(ranks):
        calls.apply(commit(0b0111, reaches))
        if rank == 2:
            submit(calls, x, parts, 1000)
        moved = {rail: sum(piece.count for piece in slices) for rail, slices in repairs(calls).items()}
        assert moved == {0: 16_666, 1: 16_667, 2: 16_667}
        begin(rank)
        for piece in range((4, 2, 0)[rank], 5):
            calls.finish(0, False, begun[rank][piece].id)
            begin(rank)
        assert len(begun[rank]) == 5


@pytest.mark.parametrize(("expected_ms", "patience_ms"), [(1, 201), (50, 250), (300, 600)])
def test_a_call_on_one_rail_has_a_time_of_its_own(expected_ms: int, patience_ms: int) -> None:
    calls = Calls(0, 2, [1, 1])
    x = np.ones(1000, np.int32)
    submit(calls, x, [(1, 0, 1000)], expected_ms)
    assert calls.front(1, False) is None  # the rail has not begun it
    calls.take(1, False)
    front = calls.front(1, False)
    assert front is not None
    assert front.alone
    assert front.patience_ns == patience_ms * MS


def test_a_repaired_piece_is_expected_to_take_the_time_of_its_bytes() -> None:
    """Each byte passes twice, and shares the rail with the main channel. Without a rate the time is 0."""
    x = np.ones(25_000, np.int32)
    for rates, expected_ms in (([100_000_000] * 4, 32), ([100_000_000, 0, 0, 0], 0)):
        calls = Calls(0, 3, rates)
        submit(calls, x, [(0, 0, x.size)])
        calls.apply(commit(0b0010, {0: reach_of([0, 0, 0])}))
        assert repairs(calls)
        front = calls.front(1, True)
        assert front is not None
        assert front.expected_ns == expected_ms * MS
        assert (front.patience_ns < 1000 * MS) == (expected_ms > 0)


@pytest.mark.parametrize("seed", range(2))
def test_memory_goes_back_when_no_rank_needs_it(seed: int) -> None:
    world = run(3, 2, 3, Random(seed))
    channels = [(rail, repair) for rail in range(2) for repair in (False, True)]
    moved = True
    while moved:  # ranks still forward data for each other
        moved = any(
            world.open(rank, channel) and (world.take(rank, channel) or world.finish(rank, channel))
            for rank in range(3)
            for channel in channels
        )
    for calls in world.calls:
        calls.release(CALLS)
        assert (calls.kept_calls, calls.kept_bytes) == (0, 0)


def test_memory_of_large_calls_is_used_again() -> None:
    """Later calls of 300 MiB fault no pages, because they reuse the first call's memory.

    Small calls come between them.
    """
    ranks = 60
    x, out = np.zeros(ranks * (5 << 20), np.int8), np.zeros(5 << 20, np.int8)
    calls = Calls(0, ranks, [1])
    faults = []
    for number in range(6):
        count = 1 if number % 2 else out.size
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        calls.submit(
            Call(DType.INT8, ReduceOp.SUM, count, Collective.REDUCE_SCATTER), x, out, [(0, 0, count)]
        )
        piece = calls.take(0, False)
        assert piece is not None
        assert calls.kept_bytes == (ranks + 1) * count
        assert calls.finish(0, False, piece.id)
        faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
        calls.release(number + 1)
    assert max(faults[1:]) < 64 < faults[0], faults  # huge pages fault 150 times


def test_memory_is_never_shared_however_sizes_change() -> None:
    """Each call's memory keeps its contents until the release, for sizes around each class's limit."""
    rng, calls, held = Random(1), Calls(0, 1, [1]), deque[tuple[Slice, int, int]]()
    for number in range(400):
        pages = rng.choice([1, 2, 4, 5, 8, 9, 10, 16, 17, 60])
        count = pages * 4096 + rng.choice([-1, 0, 1])
        x = np.zeros(count, np.uint8)
        calls.submit(Call(DType.UINT8, ReduceOp.SUM, count), x, x, [(0, 0, count)])
        piece = calls.take(0, False)
        assert piece is not None
        piece.output()[:] = number % 251
        held.append((piece, number, count))
        assert calls.kept_bytes == sum(count for _, _, count in held)
        for _ in range(rng.randrange(3) if len(held) < 20 else 3):
            if held:
                piece, written, count = held.popleft()
                assert piece.output().size == count
                assert (piece.output() == written % 251).all()
                calls.finish(0, False, piece.id)
                calls.release(written + 1)


def test_a_result_reaches_its_caller_a_part_at_a_time() -> None:
    calls = Calls(0, 2, [1, 1])
    out = submit(calls, np.ones(100, np.int32), [(0, 0, 100)])
    piece = calls.take(0, False)
    assert piece is not None
    piece.output().view(np.int32)[:] = 2
    assert calls.finish(0, False, piece.id, deliver=False)
    for copied in (40, 80):
        calls.deliver(160)
        assert calls.pending(0)
        assert calls.completed == 0
        assert (out[:copied] == 2).all()
        assert (out[copied:] == 0).all()
    calls.deliver(160)
    assert not calls.pending(0)
    assert calls.completed == 1
    assert (out == 2).all()


def test_a_rail_that_is_much_slower_than_the_others_is_noticed() -> None:
    """A slow rail is noticed only in calls that other rails share, and only after these have finished."""
    calls = Calls(0, 2, [1, 1])
    x = np.ones(1000, np.int32)

    def finish(rail: int, now_ms: int) -> None:
        piece = calls.take(rail, False)
        assert piece is not None
        calls.finish(rail, False, piece.id, now_ms * MS)

    submit(calls, x, [(1, 0, 1000)])
    finish(1, 5)
    submit(calls, x, [(0, 0, 500), (1, 500, 500)], now_ms=10)
    assert calls.laggard(1) is None  # rail 0 has not finished, either
    finish(0, 40)
    assert calls.laggard(1) is None  # rail 1 has not begun
    calls.take(1, False)
    lags = calls.laggard(1)
    assert lags is not None
    assert (lags.op_index, lags.others_ns, lags.since_ns) == (1, 30 * MS, 10 * MS)
    assert lags.patience_ns == 300 * MS  # ten times as long as the others took
    assert calls.laggard(0) is None


@pytest.mark.parametrize(("expected_ms", "patience_ms"), [(0, 200), (10, 110), (200, 400)])
def test_patience_grows_with_what_was_expected(expected_ms: int, patience_ms: int) -> None:
    calls = Calls(0, 2, [1, 1])
    x = np.ones(1000, np.int32)
    submit(calls, x, [(0, 0, 500), (1, 500, 500)], expected_ms)
    pieces = [calls.take(rail, False) for rail in range(2)]
    assert pieces[0] is not None
    calls.finish(0, False, pieces[0].id, MS)
    lags = calls.laggard(1)
    assert lags is not None
    assert lags.patience_ns == patience_ms * MS
