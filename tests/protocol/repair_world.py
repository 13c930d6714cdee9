# SPDX-License-Identifier: Apache-2.0
"""Ranks' tables of calls on rails that a schedule kills and revives, with the memory that slices would touch.

The world replaces rails and the recovery machine. The k-th slice of a channel is one collective of all ranks.
Ranks stop one after the other before a decision, and apply the decision one after the other. Other ranks
continue in the meantime.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import numpy as np
from numpy.typing import NDArray
from protocol.calls import Call as RanksCall
from protocol.calls import integer_call, total

from railweave._native.agent import Call
from railweave._native.collectives import Collective, DType, ReduceOp
from railweave._rigs.calls import Calls, Slice
from railweave._rigs.recovery import Commit, Position, Reach

Channel = tuple[int, bool]  # rail, repair
KINDS = [Collective.ALL_REDUCE, Collective.REDUCE_SCATTER, Collective.ALL_GATHER, Collective.BROADCAST]


@dataclass
class Running:
    """The slices of a channel between two decisions that end it, by rank and in order."""

    taken: list[list[Slice]]
    finished: list[int]
    sums: dict[int, list[NDArray[np.int64]]] = field(default_factory=dict)  # by number: the result, by shard


class World:
    def __init__(self, size: int, rails: int, random: Random) -> None:
        self.size = size
        self.rails = rails
        self.random = random
        rates = [random.choice([0, 30, 100]) * 1_000_000 for _ in range(rails)]
        self.calls = [Calls(rank, size, rates) for rank in range(size)]
        self.made: dict[int, RanksCall] = {}  # by op index
        self.wanted: dict[int, list[NDArray[np.int32]]] = {}  # results by op index, then rank
        self.commits: list[Commit] = []
        self.applied = [0] * size  # commits, by rank
        self.frozen: list[Position | None] = [None] * size
        self.next_alive: int | None = None  # rails that the next decision keeps alive
        self.decided = 0  # commits before the next decision
        self.channels: dict[tuple[int, Channel], Running] = {}  # by life of the channel
        self.lives = [dict.fromkeys(self._all_channels(), 0) for _ in range(size)]

    def _all_channels(self) -> list[Channel]:
        return [(rail, repair) for rail in range(self.rails) for repair in (False, True)]

    # ------------------------------------------------------------ calls

    def alive(self, rank: int, op_index: int) -> int:
        alive = (1 << self.rails) - 1
        for commit in self.commits[: self.applied[rank]]:
            if commit.boundary <= op_index:
                alive = commit.alive
        return alive

    def submit(self, rank: int) -> None:
        op_index = self.calls[rank].next
        collective, count, root = self._shape(op_index)
        call = Call(DType.INT32, ReduceOp.SUM, count, collective, root)
        alive = self.alive(rank, op_index)
        rails = [rail for rail in range(self.rails) if alive >> rail & 1]
        if op_index not in self.made:
            in_place = self.random.random() < 0.5
            made = integer_call(op_index, self.size, collective, count, root, in_place)
            self.made[op_index], self.wanted[op_index] = made, made.expected(total)
        made = self.made[op_index]
        arrays = made.given[rank].reshape(-1), made.outputs[rank].reshape(-1)
        self.calls[rank].submit(call, *arrays, _cut(Random(f"{op_index} {alive}"), rails, count))

    def _shape(self, op_index: int) -> tuple[Collective, int, int]:
        """Return collective, count and root of a call. They are the same on all ranks."""
        random = Random(op_index)
        collective = random.choice([Collective.ALL_REDUCE] * 3 + KINDS)
        root = random.randrange(self.size) if collective == Collective.BROADCAST else 0
        return collective, random.choice([3, 100, 40_000, 300_000]), root

    # ------------------------------------------------------------ channels

    def open(self, rank: int, channel: Channel) -> bool:
        """Return whether a channel of this rank carries slices now."""
        rail, repair = channel
        if self.frozen[rank] is not None:
            assert self.next_alive is not None
            return not repair and bool(self._last_alive(rank) & self.next_alive >> rail & 1)
        return bool(self._last_alive(rank) >> rail & 1) and (not repair or self.applied[rank] > 0)

    def _last_alive(self, rank: int) -> int:
        return self.commits[self.applied[rank] - 1].alive if self.applied[rank] else (1 << self.rails) - 1

    def _running(self, rank: int, channel: Channel) -> Running:
        key = (self.lives[rank][channel], channel)
        return self.channels.setdefault(key, Running([[] for _ in range(self.size)], [0] * self.size))

    def take(self, rank: int, channel: Channel) -> bool:
        piece = self.calls[rank].take(*channel)
        if piece is None:
            return False
        running = self._running(rank, channel)
        number = len(running.taken[rank])
        running.taken[rank].append(piece)
        for other in running.taken:
            if len(other) > number:
                _same(piece, other[number])
        if piece.collective == self._shape(piece.op_index)[0]:  # algorithms add up in the output
            for shard in range(self.size if piece.collective == Collective.ALL_GATHER else 1):
                piece.output(shard).view(np.int32)[:] = self.random.randrange(1 << 20)
        return True

    def finish(self, rank: int, channel: Channel) -> bool:
        """Finish the channel's oldest slice on this rank, if the ranks that it needs have started it."""
        running = self._running(rank, channel)
        number = running.finished[rank]
        if number == len(running.taken[rank]):
            return False
        own = running.taken[rank][number]
        there = [len(taken) > number for taken in running.taken]
        if not (there[own.root] if own.collective == Collective.BROADCAST else all(there)):
            return False
        if number not in running.sums:
            running.sums[number] = self._result(running, number, own)
        for shard, values in self._own_part(rank, own, running.sums[number]):
            own.output(shard).view(np.int32)[:] = values
        running.finished[rank] += 1
        self.calls[rank].finish(*channel, own.id, deliver=False)
        return True

    def deliver(self, rank: int) -> bool:
        """Deliver more of the oldest available result to the caller."""
        calls = self.calls[rank]
        if not calls.delivering:
            return False
        op_index = calls.deliver(self.random.choice([8, 4096, 1 << 20]))
        if not calls.pending(op_index):
            self._got(rank, op_index)
        return True

    def _result(self, running: Running, number: int, own: Slice) -> list[NDArray[np.int32]]:
        pieces = [taken[number] if len(taken) > number else None for taken in running.taken]

        def read(rank: int, shard: int = 0) -> NDArray[np.int32]:
            piece = pieces[rank]
            assert piece is not None
            return piece.input(shard).view(np.int32).copy()

        ranks = range(self.size)
        match own.collective:
            case Collective.ALL_REDUCE:
                return [np.sum([read(rank) for rank in ranks], axis=0, dtype=np.int32)]
            case Collective.REDUCE_SCATTER:
                return [
                    np.sum([read(rank, shard) for rank in ranks], axis=0, dtype=np.int32) for shard in ranks
                ]
            case Collective.ALL_GATHER:
                return [read(rank) for rank in ranks]
        return [read(own.root)]

    def _own_part(
        self, rank: int, own: Slice, result: list[NDArray[np.int32]]
    ) -> list[tuple[int, NDArray[np.int32]]]:
        if own.collective == Collective.REDUCE_SCATTER:
            return [(0, result[rank])]
        return list(enumerate(result))

    def _got(self, rank: int, op_index: int) -> None:
        made = self.made[op_index]
        made.check(rank, self.wanted[op_index][rank], f"rank {rank}, call #{op_index}")
        made.spoil(rank)

    # ------------------------------------------------------------ decisions

    def settled(self) -> bool:
        return self.next_alive is None and all(count == len(self.commits) for count in self.applied)

    def may_release(self, rank: int) -> bool:
        """Return whether a rank may release calls. A frozen rank keeps its calls until the decision."""
        return self.completed() > 0 and self.frozen[rank] is None

    def begin(self, alive: int) -> None:
        assert self.settled()
        self.next_alive = alive
        self.decided = len(self.commits)

    def may_freeze(self, rank: int) -> bool:
        return self.next_alive is not None and self.frozen[rank] is None and self.decided == len(self.commits)

    def freeze(self, rank: int) -> None:
        """Freeze this rank. Channels that end lose their slices."""
        assert self.next_alive is not None
        for rail, repair in self._all_channels():
            if repair or not self.next_alive >> rail & 1:
                self.lives[rank][rail, repair] = len(self.commits) + 1
        self.frozen[rank] = self.calls[rank].prepare(self.next_alive)
        if all(position is not None for position in self.frozen):
            self._decide()

    def _decide(self) -> None:
        positions = [position for position in self.frozen if position is not None]
        assert self.next_alive is not None
        commit = Commit()
        commit.epoch = len(self.commits) + 1
        commit.alive = self.next_alive
        commit.boundary = max(position.submitted for position in positions)
        rails = range(self.rails)
        commit.main = [reach_of([position.main[rail] for position in positions]) for rail in rails]
        commit.repair = [reach_of([position.repair[rail] for position in positions]) for rail in rails]
        self.commits.append(commit)

    def apply(self, rank: int) -> None:
        self.calls[rank].apply(self.commits[self.applied[rank]])
        self.applied[rank] += 1
        self.frozen[rank] = None
        if all(position is None for position in self.frozen):
            self.next_alive = None

    def completed(self) -> int:
        return int(min(calls.completed for calls in self.calls))


def reach_of(done: list[int]) -> Reach:
    """Return a channel's part of a decision, from the number of slices that each rank has done."""
    reach = Reach()
    reach.done, reach.rank, reach.least = max(done), done.index(max(done)), min(done)
    return reach


def _cut(random: Random, rails: list[int], count: int) -> list[tuple[int, int, int]]:
    """Return parts of random sizes on some of the rails, sometimes several on each."""
    several = random.choice([1, 1, 3, 10])
    return [
        (rail, offset + done, min(-(-most // several), most - done))
        for rail, offset, most in _parts(random, rails, count)
        for done in range(0, most, -(-most // several))
    ]


def _parts(random: Random, rails: list[int], count: int) -> list[tuple[int, int, int]]:
    used = sorted(random.sample(rails, random.randint(1, len(rails)))) if count > len(rails) else rails[:1]
    edges = [0, *sorted(random.sample(range(1, count), len(used) - 1)), count]
    return [(rail, edges[i], edges[i + 1] - edges[i]) for i, rail in enumerate(used)]


def _same(one: Slice, other: Slice) -> None:
    def label(piece: Slice) -> tuple[object, ...]:
        return piece.op_index, piece.collective, piece.root, piece.count

    assert label(one) == label(other), "two ranks carry different slices at the same place of a channel"
