# SPDX-License-Identifier: Apache-2.0
"""Calls are cut anew alike on all ranks, and repaired, whatever rails die and come back, and whenever."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from protocol.repair_world import World

from railweave._native.agent import Call
from railweave._native.calls import Calls, Piece, recut
from railweave._native.collectives import DType, ReduceOp
from railweave._native.recovery import Commit, Reach

CALLS = 24
MS = 1_000_000  # nanoseconds


def step(world: World, rank: int, random: Random) -> bool:
    """Let one thing happen on one rank; whether anything could."""
    calls = world.calls[rank]
    channels = [(rail, repair) for rail in range(world.rails) for repair in (False, True)]
    random.shuffle(channels)
    choices = ["submit", "take", "finish", "finish", "deliver", "decide", "release"]
    random.shuffle(choices)
    for choice in choices:
        if choice == "submit" and world.may_submit(rank) and calls.next < CALLS:
            world.submit(rank)
            return True
        if choice == "deliver" and world.deliver(rank):
            return True
        if choice == "decide" and world.next_alive is not None:
            decided = len(world.commits) > world.applied[rank]
            if decided or world.may_freeze(rank):
                (world.apply if decided else world.freeze)(rank)
                return True
        if choice == "release" and world.completed() > 0 and random.random() < 0.2:
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
@settings(max_examples=60, deadline=None)
def test_all_ranks_get_all_results(size: int, rails: int, decisions: int, seed: int) -> None:
    world = run(size, rails, decisions, Random(seed))
    for rank in range(size):
        assert all(asked.spoilt for asked in world.asked[rank])


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
    """Also over rails that the call itself did not use."""
    call = Call(DType.INT32, ReduceOp.SUM, 200_000)
    parts = [Piece(0, 0, 100_000), Piece(1, 100_000, 100_000, done=True)]
    commit = Commit()
    commit.epoch, commit.alive, commit.boundary = 1, alive, 1
    commit.main = [Reach() for _ in rates]
    commit.main[1].least = commit.main[1].done = 1
    commit.repair = [Reach() for _ in rates]
    after = recut(call, 0, 3, rates, False, parts, commit)
    repaired = [piece for piece in after if piece.repair]
    assert {piece.rail: piece.count for piece in repaired} == expected
    assert sorted(piece.offset for piece in repaired)[0] == 0
    assert sum(piece.count for piece in repaired) == 100_000


@pytest.mark.parametrize("seed", range(10))
def test_memory_goes_back_when_no_rank_needs_it(seed: int) -> None:
    world = run(3, 2, 3, Random(seed))
    channels = [(rail, repair) for rail in range(2) for repair in (False, True)]
    moved = True
    while moved:  # what ranks still carry for each other
        moved = any(
            world.open(rank, channel) and (world.take(rank, channel) or world.finish(rank, channel))
            for rank in range(3)
            for channel in channels
        )
    for calls in world.calls:
        calls.release(CALLS)
        assert (calls.kept_calls, calls.kept_bytes) == (0, 0)


def test_a_result_reaches_its_caller_a_part_at_a_time() -> None:
    calls = Calls(0, 2, [1, 1])
    x, out = np.ones(100, np.int32), np.zeros(100, np.int32)
    calls.submit(Call(DType.INT32, ReduceOp.SUM, x.size), x, out, [(0, 0, 100)])
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
    """Only by calls that other rails carry, too, and only when all else of them is done."""
    calls = Calls(0, 2, [1, 1])
    x = np.ones(1000, np.int32)
    call = Call(DType.INT32, ReduceOp.SUM, x.size)

    def start(now_ms: int, expected_ms: int, parts: list[tuple[int, int, int]]) -> None:
        calls.submit(call, x, np.empty_like(x), parts, expected_ms * MS, now_ms * MS)

    def finish(rail: int, now_ms: int) -> None:
        piece = calls.take(rail, False)
        assert piece is not None
        calls.finish(rail, False, piece.id, now_ms * MS)

    start(0, 0, [(1, 0, 1000)])
    finish(1, 5)
    start(10, 0, [(0, 0, 500), (1, 500, 500)])
    assert calls.laggard(1) is None  # all wait for rail 0, too
    finish(0, 40)
    assert calls.laggard(1) is None  # not even begun
    calls.take(1, False)
    lags = calls.laggard(1)
    assert lags is not None
    assert (lags.op_index, lags.others_ns, lags.since_ns) == (1, 30 * MS, 10 * MS)
    assert lags.patience_ns == 300 * MS  # ten times what the others took
    assert calls.laggard(0) is None


@pytest.mark.parametrize(("expected_ms", "patience_ms"), [(0, 200), (10, 110), (50, 150), (200, 600)])
def test_patience_grows_with_what_was_expected(expected_ms: int, patience_ms: int) -> None:
    calls = Calls(0, 2, [1, 1])
    x = np.ones(1000, np.int32)
    call = Call(DType.INT32, ReduceOp.SUM, x.size)
    calls.submit(call, x, np.empty_like(x), [(0, 0, 500), (1, 500, 500)], expected_ms * MS, 0)
    pieces = [calls.take(rail, False) for rail in range(2)]
    assert pieces[0] is not None
    calls.finish(0, False, pieces[0].id, MS)
    lags = calls.laggard(1)
    assert lags is not None
    assert lags.patience_ns == patience_ms * MS
