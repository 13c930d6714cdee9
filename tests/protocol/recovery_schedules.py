# SPDX-License-Identifier: Apache-2.0
"""Seeded schedules of failing rails, in virtual time. They check every decision of the ranks.

    cd tests && python -m protocol.recovery_schedules --seeds 0:10000

Two to eight ranks use two to four rails. Links lose, duplicate, reorder and delay datagrams. Rails are cut
at one host or at all hosts, in one direction or both, once or repeatedly. Switches and processes stand still.
Connections break, rails meet obstacles, and trials fail. Ranks begin late or die. The program prints each
failed seed with the command that replays it.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial

from protocol.recovery_network import QUIET, SECRET, Host, Ledger, Network
from protocol.seeds import main
from protocol.virtual_time import MILLISECOND, SECOND, Link

from railweave._rigs import recovery

PEER_TIMEOUT = 3 * SECOND  # only death keeps a rank silent for longer
FAULTS = 1500 * MILLISECOND  # the time in which faults happen
SETTLED = 2 * SECOND  # after the last repair: a failed trial, the longest hold, a trial, heartbeats
LEEWAY = 450 * MILLISECOND  # extra patience of the ranks after a process has stood still
NOTICED = 300 * MILLISECOND  # after a cut, until all ranks exclude the rail: patience, a round, retries
ROUND = 400 * MILLISECOND  # the longest round, if all ranks run and have a path to rank 0


class Schedule:
    """One run, drawn from a seed."""

    def __init__(self, seed: int, **options: int) -> None:
        self.random = random.Random(seed)
        self.ranks = self.random.choice((2, 2, 3, 3, 4, 5, 8))
        self.rails = self.random.choice((2, 2, 2, 3, 4))
        self.ledger = Ledger()
        self.counts: Counter[str] = Counter()
        self.dead: set[int] = set()
        self.touched: set[int] = set()  # rails that had a fault
        self.repaired_at = 0
        self.trial_fails = self.random.choice((0.0, 0.0, 0.3))
        self.leeway = 0
        self.disturbed_until = 0  # until then a rank or switch stands still, or a rank cannot reach rank 0
        link = self.draw_link()
        self.quiet = link.loss <= 0.02 and not (link.reorder and link.late > 3 * MILLISECOND)
        self.network = Network(self.rails, link, self.random.getrandbits(32))
        self.mended = [-1] * self.rails
        self.down_since = [-SECOND] * self.rails
        self.stood_until = [-PEER_TIMEOUT] * self.ranks
        self.options_changed = options

    def options(self, rank: int) -> recovery.Options:
        """Return the machine's options."""
        options = recovery.Options(
            rank=rank, world_size=self.ranks, rails=self.rails, secret=SECRET, peer_timeout=PEER_TIMEOUT
        )
        for name, value in self.options_changed.items():
            setattr(options, name, value)
        return options

    @property
    def hosts(self) -> list[Host]:
        """Return all ranks."""
        return self.network.hosts

    def draw_link(self) -> Link:
        """Draw the properties of the rails' links."""
        choice = self.random.choice
        return Link(
            delay=choice((50_000, 200_000, 2 * MILLISECOND)),
            jitter=choice((20_000, MILLISECOND, 8 * MILLISECOND)),
            loss=choice((0.0, 0.0, 0.01, 0.2)),
            duplicate=choice((0.0, 0.0, 0.2)),
            reorder=choice((0.0, 0.0, 0.05)),
            late=choice((3, 30)) * MILLISECOND,
        )

    # --- what happens ---

    def run(self) -> None:
        """Start the ranks, let faults happen and end, and check the final state."""
        for rank in range(self.ranks):
            self.network.at(self.network.now, partial(self.work, Host(self, rank)))
        late = self.random.choice((0, 0, 300)) * MILLISECOND
        if late:
            self.stand(self.random.randrange(self.ranks), late)
        end = 300 * MILLISECOND + FAULTS
        for _ in range(self.random.randint(1, 5)):
            when = self.random.randint(300 * MILLISECOND, end)
            self.network.at(when, partial(self.random.choice(KINDS), self))
        self.network.run_until(end + SECOND)  # repairs come at most a second after their faults
        patience = SETTLED + (PEER_TIMEOUT if self.dead else 0)
        self.network.run_until(max(end + SECOND, self.repaired_at) + patience, self.settled)
        self.check()

    def work(self, host: Host) -> None:
        """Submit and complete some calls, again and again."""
        for _ in range(self.random.choice((0, 1, 1, 3))):
            host.submit()
        host.complete()
        self.network.at(self.network.now + self.random.randint(1, 20) * MILLISECOND, partial(self.work, host))

    def soon(self, host: Host, action: Callable[[], None]) -> None:
        """Plan an action of an agent, at once or a few milliseconds later."""
        delay = self.random.choice((0, 0, 1, 5)) * MILLISECOND
        self.network.at(self.network.now + delay, partial(self.act, host, action))

    def act(self, host: Host, action: Callable[[], None]) -> None:
        """Do an agent's action. Do it later if the process stands still, and never if it is dead."""
        if not host.alive or host.lost is not None:
            return
        if self.network.now < host.asleep_until:
            self.network.at(host.asleep_until, partial(self.act, host, action))
            return
        action()
        host.turn()

    def join_trial(self, host: Host, rail: int, incarnation: int) -> None:
        """Note that a rank has restarted a rail. The trial ends after all ranks have, if no path is cut."""
        trial = self.ledger.trials[rail, incarnation]
        trial.add(host.rank)
        if len(trial) < self.ranks:
            return
        if not self.network.whole(rail):
            return
        fails = self.network.now < self.repaired_at and self.random.random() < self.trial_fails
        for each in self.hosts:
            passed = not (fails and each.rank == self.ranks - 1)
            self.soon(each, partial(self.end_trial, each, rail, incarnation, passed))

    def end_trial(self, host: Host, rail: int, incarnation: int, passed: bool) -> None:
        """Report a trial's result to the machine."""
        host.machine.restarted(rail, incarnation, passed, self.network.now)

    # --- faults, each repaired before long ---

    def repair(self, action: Callable[[], None], within: tuple[int, int]) -> None:
        """Plan the end of a fault, after a time from the range `within` in milliseconds."""
        when = self.network.now + self.random.randint(*within) * MILLISECOND
        self.repaired_at = max(self.repaired_at, when)
        self.network.at(when, action)

    def disturb(self, until: int) -> None:
        """Allow longer rounds until a time."""
        self.disturbed_until = max(self.disturbed_until, until)

    def draw_rail(self) -> int:
        """Draw the rail of a fault."""
        rail = self.random.randrange(self.rails)
        self.touched.add(rail)
        return rail

    def cut_at(self, rail: int, ranks: list[int], within: tuple[int, int]) -> None:
        """Cut a rail at some hosts, in one direction or both, and plan the repair."""
        ways = self.random.choice((("out",), ("in",), ("out", "in"), ("out", "in")))
        self.network.cut(rail, ranks, ways)
        self.repair(partial(self.mend, rail, ranks, ways), within)
        noticed = self.network.now + NOTICED + self.leeway
        self.network.at(noticed, partial(self.check_noticed, rail, self.network.now))
        for rank in range(self.ranks):
            if not any(self.two_way(each, rank) for each in range(self.rails)):
                self.disturb(self.repaired_at)

    def mend(self, rail: int, ranks: list[int], ways: tuple[str, ...]) -> None:
        """End a cut."""
        self.network.cut(rail, ranks, ways, cut=False)
        self.mended[rail] = self.network.now

    def two_way(self, rail: int, rank: int) -> bool:
        """Return whether a rank and rank 0 reach each other on a rail."""
        return self.network.passes(rail, 0, rank) and self.network.passes(rail, rank, 0)

    def cut_host(self) -> None:
        """Cut a host's link on one rail."""
        self.cut_at(self.draw_rail(), [self.random.randrange(self.ranks)], (20, 900))

    def cut_rail(self) -> None:
        """Cut a rail at all hosts."""
        self.cut_at(self.draw_rail(), list(range(self.ranks)), (20, 900))

    def cut_several(self) -> None:
        """Cut links of several rails at different hosts, so that their rounds overlap."""
        for turn in range(self.random.randint(2, self.rails)):
            wait = turn * self.random.choice((0, 1, 3, 8)) * MILLISECOND
            self.repaired_at = max(self.repaired_at, self.network.now + wait)
            self.network.at(self.network.now + wait, self.cut_host)

    def flap(self) -> None:
        """Cut a rail at one host three times."""
        rail, rank = self.draw_rail(), self.random.randrange(self.ranks)
        for turn in range(3):
            when = self.network.now + turn * 250 * MILLISECOND
            self.repaired_at = max(self.repaired_at, when + 120 * MILLISECOND)
            self.network.at(when, partial(self.cut_at, rail, [rank], (100, 120)))

    def break_channel(self) -> None:
        """Break a connection of a main channel."""
        rail, host = self.draw_rail(), self.random.choice(self.hosts)
        self.repaired_at = max(self.repaired_at, self.network.now)
        if host.running[rail]:
            self.act(host, lambda: host.machine.suspect(rail, "its connection broke", self.network.now))

    def obstruct(self) -> None:
        """Report an obstacle to a rail at a host, for example no carrier."""
        rail, host = self.draw_rail(), self.random.choice(self.hosts)
        self.act(host, lambda: host.machine.set_obstacle(rail, "no carrier", self.network.now))
        self.repair(
            lambda: self.act(host, lambda: host.machine.set_obstacle(rail, "", self.network.now)), (20, 900)
        )

    def stand(self, rank: int, duration: int) -> None:
        """Stop a process for a time, unless it has stood still a short time ago."""
        if self.network.now - self.stood_until[rank] < PEER_TIMEOUT // 2:
            return
        self.stood_until[rank] = self.network.now + duration
        self.leeway = LEEWAY
        self.hosts[rank].sleep(duration)
        self.disturb(self.network.now + duration)
        self.repaired_at = max(self.repaired_at, self.network.now + duration)

    def stand_still(self) -> None:
        """Stop a process for less than the others' patience."""
        self.stand(self.random.randrange(self.ranks), self.random.choice((15, 60, 300, 800)) * MILLISECOND)

    def hold_switch(self) -> None:
        """Stop a rail's switch for a short time."""
        rail = self.draw_rail()
        duration = self.random.choice((30, 60, 120, 400)) * MILLISECOND
        self.network.hold(rail, duration)
        self.disturb(self.network.now + duration)
        self.repaired_at = max(self.repaired_at, self.network.now + duration)

    def die(self) -> None:
        """Kill a rank."""
        if self.dead:
            return
        rank = self.random.randrange(self.ranks)
        self.dead.add(rank)
        self.network.kill(rank, refuses=self.random.random() < 0.5)

    # --- checks ---

    def check_commit(self, commit: recovery.Commit, attempt: int) -> None:
        """Compare a decision with the positions that the ranks have reported."""
        said = self.ledger.positions[commit.epoch, attempt]
        assert set(said) == set(range(self.ranks)), f"epoch {commit.epoch} without all ranks' answers"
        assert commit.boundary == max(position.submitted for position in said.values())
        for kind, reaches in (("main", commit.main), ("repair", commit.repair)):
            for rail, reach in enumerate(reaches):
                done = [getattr(said[rank], kind)[rail] for rank in range(self.ranks)]
                assert (reach.done, reach.least) == (max(done), min(done))
                assert reach.rank == done.index(max(done))

    def check_noticed(self, rail: int, since: int) -> None:
        """Check that every rank excludes a rail that was cut all the time, unless it is the last rail."""
        cut = not self.network.whole(rail) and self.mended[rail] < since
        if self.dead or not cut or not self.quiet or self.disturbed_until > since:
            return
        for host in self.hosts:
            alive = host.machine.alive
            assert alive == 1 << rail or not alive >> rail & 1, (
                f"rank {host.rank} does not know that rail {rail} is cut"
            )

    def applied(self, host: Host, commit: recovery.Commit, now: int) -> None:
        """Check a decision that a rank has applied, and how long the rank was frozen."""
        for rail in range(self.rails):
            assert commit.alive >> rail & 1 or rail in self.touched or not self.quiet, (
                f"rail {rail} was taken down, but nothing was wrong with it"
            )
        for rail in set(host.changes[-2][1]) - set(host.changes[-1][1]):
            if host.rank == 0:
                self.down_since[rail] = now
        since = max(host.frozen_at, self.disturbed_until)
        assert now - since <= ROUND, f"rank {host.rank} was frozen for {(now - since) / MILLISECOND} ms"

    def living(self) -> list[Host]:
        """Return the ranks that are not dead."""
        return [host for host in self.hosts if host.rank not in self.dead]

    def settled(self) -> bool:
        """Return whether all rails are up again, or all ranks know that a rank died."""
        if self.dead:
            return all(host.lost is not None for host in self.living())
        return (
            all(host.prepare is None and host.machine.alive == (1 << self.rails) - 1 for host in self.hosts)
            and len({host.epoch for host in self.hosts}) == 1
        )

    def most_datagrams(self, rank: int) -> int:
        """Return how many datagrams a rank may send: heartbeats, and states for the ranks it agrees with."""
        peers = self.ranks - 1 if rank == 0 else 1
        seconds = self.network.now / SECOND + 0.5
        return int(self.rails * seconds * (100 + 220 * peers))

    def check(self) -> None:
        """Check the final state."""
        self.counts += Counter(datagrams=self.network.sent, epochs=max(host.epoch for host in self.hosts))
        for host in self.living():
            stats = host.machine.stats()
            assert not stats["violations"] + stats["malformed"] + stats["strangers"], f"{stats}"
            assert stats["rounds"] == host.epoch
            assert stats["sent"] <= self.most_datagrams(host.rank), f"rank {host.rank}: {stats}"
        if self.dead:
            late = [host.rank for host in self.living() if host.lost is None]
            assert not late, f"ranks {late} have not heard that {self.dead} died"
            return
        states = [(host.rank, bin(host.machine.alive), host.epoch, host.prepare) for host in self.hosts]
        assert self.settled(), f"not all rails came back: {states}, now {self.network.now / MILLISECOND} ms"
        assert min(host.done for host in self.hosts) > 0


class BusyMachine(Schedule):
    """A run without faults, on a busy machine: each process has no core for 30 % of the time.

    A process loses its core for 2 to 30 ms, seldom for up to 100 ms. The processes are four ranks and the
    switch of rail 0. The other rails have no such switch.
    """

    SECONDS = 40

    def __init__(self, seed: int, **options: int) -> None:
        super().__init__(seed, **options)
        self.ranks, self.rails, self.quiet = 4, 3, True
        self.network = Network(self.rails, QUIET, seed)

    def run(self) -> None:
        """Let processes run late. Check that no rail is excluded."""
        for rank in range(self.ranks):
            self.network.at(self.network.now, partial(self.work, Host(self, rank)))
        within = self.SECONDS * SECOND
        for stand in (*(rank.sleep for rank in self.hosts), partial(self.network.hold, 0)):
            self.network.take_core(stand, share=0.3, within=within, rare=0.01)
        self.network.run_until(within)
        assert all(host.epoch == 0 for host in self.hosts), "a rail was excluded, but nothing was wrong"
        assert not any(host.machine.stats()["violations"] for host in self.hosts)


KINDS: tuple[Callable[[Schedule], None], ...] = (
    Schedule.cut_host,
    Schedule.cut_host,
    Schedule.cut_rail,
    Schedule.cut_several,
    Schedule.cut_several,
    Schedule.flap,
    Schedule.break_channel,
    Schedule.obstruct,
    Schedule.stand_still,
    Schedule.hold_switch,
    Schedule.die,
)


if __name__ == "__main__":
    sys.exit(main(Schedule, __doc__))
