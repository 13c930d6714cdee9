# SPDX-License-Identifier: Apache-2.0
"""Seeded schedules of multicast broadcast and allgather: every byte compared, none may hang.

    cd tests && python -m protocol.spread_schedules --seeds 0:10000

The native machines run in virtual time, on links drawn from the seed. Links lose up to 30 % of the packets,
duplicate and reorder. Ranks begin late or lose their core for 2 to 30 ms. Several tasks run at once. Groups
move. Each rank halts at a different time, and begins new tasks while packets of the old ones are under way.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from functools import partial

from protocol.seeds import main
from protocol.spread_network import GROUP, Link, SpreadNetwork, Task
from protocol.virtual_time import MICROSECOND, MILLISECOND, SECOND

from railweave._native.collectives import Collective

BOUNDS = ((0.05, 5 * SECOND), (1.0, 60 * SECOND))  # largest loss, and how long a schedule may take with it
MOST_CHUNKS = 600  # chunks of a task, in all shards together


class Schedule:
    """One run."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.counts: Counter[str] = Counter()
        choice = self.random.choice
        self.size = choice((2, 2, 3, 3, 4, 4, 5, 8, 16))
        link = Link(
            rate_bps=choice((0, 10**8, 10**9)),
            queue=choice((MILLISECOND, 20 * MILLISECOND)),
            loss=choice((0.0, 0.01, 0.05, 0.3)),
            duplicate=choice((0.0, 0.01, 0.2)),
            jitter=choice((0, 20 * MICROSECOND, 2 * MILLISECOND)),
            reorder=choice((0.0, 0.01, 0.1)),
            late=choice((MILLISECOND, 30 * MILLISECOND)),
        )
        self.network = SpreadNetwork(
            self.size,
            link,
            seed=self.random.getrandbits(32),
            rate_bps=choice((0, link.rate_bps)),
            roots=choice((1, 2, 4, 65535, 65535)),
            racks=choice((1, 1, 2)),
        )
        self.number = choice((0, 2**31 - 3, 2**32 - 3, 5 * 2**32 - 2))  # some wrap on the wire
        self.era = 0  # number of halts so far
        self.group = GROUP
        self.moving = False
        self.halting = False
        self.calls: list[Task] = []  # of this era
        self.entered: list[dict[int, int]] = []  # per call: ranks in READY, and their unfinished calls
        self.starts: dict[int, int] = {}  # the earliest start of each rank's newest call
        self.form()

    # --- calls ---

    def soon(self) -> int:
        """Return a time shortly after now."""
        return self.network.now + self.random.randrange(
            1 + self.random.choice((0, 30, 700, 3_000, 30_000)) * MICROSECOND
        )

    def form(self) -> None:
        """Draw the calls of an era. Every rank enters them at different times."""
        self.calls = [self.draw() for _ in range(self.random.randint(1, 4))]
        self.entered = [{} for _ in self.calls]
        self.starts = {}
        for rank in range(self.size):
            self.network.at(self.soon(), partial(self.enter, self.era, rank, 0))

    def draw(self) -> Task:
        """Draw one call."""
        self.number += self.random.choice((1, 1, 2, 1000))
        collective = self.random.choice((Collective.BROADCAST, Collective.ALL_GATHER))
        shards = self.size if collective == Collective.ALL_GATHER else 1
        chunk = self.random.choice((1, 7, 64, 1456))
        most = self.random.choice((1, 3, 20, MOST_CHUNKS)) * chunk // shards
        return self.network.task(
            collective,
            self.random.choice((0, 1, chunk - 1, chunk, chunk + 1, self.random.randint(1, most + 1))),
            chunk,
            number=self.number,
            root=self.random.randrange(self.size) if collective == Collective.BROADCAST else 0,
            offset=self.random.choice((0, 0, 5)),
            in_place=self.random.random() < 0.5,
        )

    def enter(self, era: int, rank: int, call: int) -> None:
        """Contribute a rank's part to READY of a call. The last contribution completes READY."""
        if era != self.era:
            return
        done = sum(each.slice_id in self.network.ranks[rank].done_at for each in self.calls)
        self.entered[call][rank] = call - done
        if call + 1 < len(self.calls):
            self.network.at(self.soon(), partial(self.enter, era, rank, call + 1))
        if len(self.entered[call]) == self.size:
            for each in range(self.size):
                self.starts[each] = max(self.starts.get(each, 0), self.soon())
                self.network.at(self.starts[each], partial(self.start, era, each, call))

    def start(self, era: int, rank: int, call: int) -> None:
        """Deliver READY's result to a rank, which starts the call."""
        if era == self.era:
            self.network.start(self.calls[call], rank, max(self.entered[call].values()))

    # --- faults ---

    def sleep(self) -> None:
        """Take a process's core away for some time."""
        self.counts["sleep"] += 1
        duration = self.random.randint(2, 30) * MILLISECOND
        self.network.ranks[self.random.randrange(self.size)].sleep(duration)

    def halt(self) -> None:
        """Halt every rank, each at a different time. Then all go on with new calls."""
        if self.halting:
            return
        self.halting = True
        self.counts["halt"] += 1
        self.era += 1
        left = set(range(self.size))
        for rank in range(self.size):
            self.network.at(self.soon(), partial(self.halt_one, rank, left))

    def halt_one(self, rank: int, left: set[int]) -> None:
        """Halt one rank. The caller then overwrites the memory of calls that are not done."""
        self.network.spreaders[rank].halt()
        for call in self.calls:
            if call.slice_id not in self.network.ranks[rank].done_at:
                call.spoil(rank)
        left.remove(rank)
        if not left:
            self.halting = False
            self.form()

    def move(self) -> None:
        """Pause every rank, each at a different time. Then the group goes on with another number."""
        if self.moving:
            return
        self.moving = True
        self.counts["move"] += 1
        left = set(range(self.size))
        for rank in range(self.size):
            self.network.at(self.soon(), partial(self.pause, rank, left))

    def pause(self, rank: int, left: set[int]) -> None:
        """Pause one rank. After the last one the group moves."""
        self.network.spreaders[rank].pause()
        left.remove(rank)
        if left:
            return
        self.group += 1
        resumed: set[int] = set()
        for each in range(self.size):
            self.network.at(self.soon(), partial(self.resume, each, resumed))

    def resume(self, rank: int, resumed: set[int]) -> None:
        """Resume one rank in the new group."""
        self.network.spreaders[rank].resume(self.group, rank, self.network.now)
        self.network.ranks[rank].pump()
        resumed.add(rank)
        self.moving = len(resumed) < self.size

    # --- the run ---

    def run(self) -> None:
        """Run to the end. Raise AssertionError for a wrong byte, a hang or a forbidden event."""
        for _ in range(self.random.choice((0, 0, 1, 2, 4))):
            when = self.random.randrange(100) * self.random.choice((10, 100, 1000)) * MICROSECOND
            self.network.at(when, self.random.choice((self.sleep, self.sleep, self.halt, self.move)))
        within = next(bound for loss, bound in BOUNDS if self.network.link.loss <= loss)
        self.network.run(self.done, within)
        self.network.drain()
        self.counts += Counter({name: self.network.total(name) for name in ("received", "fetched")})
        self.check()

    def done(self) -> bool:
        """Return whether all ranks have completed the calls of the last era."""
        return not self.halting and self.network.all_done(*self.calls)

    def check(self) -> None:
        """Check that nothing was written after a task's end, and that no task was reported twice.

        The results were compared when the tasks were done.
        """
        for rank, host in enumerate(self.network.ranks):
            assert host.machine.idle
            assert host.done == sorted(set(host.done)), f"rank {rank} reported {host.done}"
            refused = host.machine.stats()["refused"]
            assert sum(refused.values()) == refused["group"] + refused["replay"], refused
            assert not refused["replay"] or self.network.link.duplicate or self.network.link.reorder
        for task in self.network.tasks:
            task.check_spoilt(f"task {task.number}, written after its end")
            assert len(task.spoilt) == self.size


if __name__ == "__main__":
    sys.exit(main(Schedule, __doc__))
