# SPDX-License-Identifier: Apache-2.0
"""Seeded schedules of failing rails: what the ranks agree on is held against what must be, in virtual time.

    cd tests && python -m protocol.recovery_schedules --seeds 0:10000

Two to eight ranks on two to four rails; loss, duplication, overtaking, jitter; rails cut at one host, one way
or both, at all hosts, again and again; switches and processes that stand still; connections that break,
obstacles; trials that fail; ranks that begin late or die. A seed that fails is printed with the command that
replays it. Behind that, what passes between a cut and the decision.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial

from protocol.recovery_network import MILLISECOND, SECOND, TOKEN, Event, Network, Path, Tamper
from railweave._native import recovery

PEER_TIMEOUT = 3 * SECOND  # more than any faults but death keep a rank silent
FAULTS = 1500 * MILLISECOND  # in which they happen
MOST_HOLD = 1500 * MILLISECOND
SETTLED = 2 * SECOND + 400 * MILLISECOND  # after the last repair: a trial in vain, most hold, a trial, beats
ROUND = 400 * MILLISECOND  # the longest that a round may take while all ranks run and have a way to rank 0
MARKS = 2  # trees that a rail has

Plan = tuple[int, ...]  # the rails that a call is cut among


def rails_of(bits: int) -> Plan:
    """A set of rails as numbers."""
    return tuple(rail for rail in range(bits.bit_length()) if bits >> rail & 1)


@dataclass
class Ledger:
    """What all ranks have done, to be compared."""

    commits: dict[int, tuple[object, ...]] = field(default_factory=dict)
    plans: dict[int, Plan] = field(default_factory=dict)  # by op
    positions: dict[tuple[int, int], dict[int, recovery.Position]] = field(default_factory=dict)
    marks: dict[tuple[int, int], dict[int, list[int]]] = field(default_factory=dict)  # by rail, incarnation
    trials: defaultdict[tuple[int, int], set[int]] = field(default_factory=lambda: defaultdict(set))
    reasons: dict[tuple[int, int], set[str]] = field(default_factory=lambda: defaultdict(set))


class Host:
    """The agent of one rank: submits calls, halts and starts lanes, and checks that it may."""

    def __init__(self, schedule: Schedule, rank: int) -> None:
        self.schedule = schedule
        self.rank = rank
        self.machine = recovery.Recovery(schedule.options(rank), schedule.network.now)
        self.epoch = 0
        self.changes: list[tuple[int, Plan]] = [(0, tuple(range(schedule.rails)))]
        self.freeze: recovery.Freeze | None = None
        self.frozen_at = 0
        self.submitted = 0
        self.done = 0
        self.all_done = 0
        self.running = [True] * schedule.rails
        self.incarnation = [0] * schedule.rails
        self.mark = [0] * schedule.rails
        self.lost: recovery.PeerLost | None = None

    # --- calls ---

    def submit(self) -> None:
        """Cut the next call, as its index says."""
        if self.freeze is not None or self.lost is not None:
            return
        plan = next(plan for boundary, plan in reversed(self.changes) if boundary <= self.submitted)
        known = self.schedule.ledger.plans.setdefault(self.submitted, plan)
        assert known == plan, f"rank {self.rank} cuts op {self.submitted} among {plan}, another among {known}"
        self.submitted += 1
        for rail in plan:
            self.mark[rail] += 1

    def complete(self) -> None:
        """Everybody has submitted some calls: they complete here."""
        if self.lost is None:
            self.done = max(self.done, min(host.submitted for host in self.schedule.hosts))
            self.machine.completed(self.done, self.schedule.network.now)

    # --- what the machine says ---

    def on_event(self, event: Event, now: int) -> None:
        """Do what the event says."""
        assert self.lost is None or isinstance(event, recovery.PeerLost), f"{event} after PeerLost"
        match event:
            case recovery.Freeze():
                self.on_freeze(event, now)
            case recovery.Commit():
                self.on_commit(event, now)
            case recovery.Restart():
                self.on_restart(event)
            case recovery.Abandon():
                assert self.incarnation[event.rail] == event.incarnation
                self.schedule.soon(self, partial(self.abandon, event))
            case recovery.AllCompleted():
                assert self.all_done < event.op <= min(host.done for host in self.schedule.hosts)
                self.all_done = event.op
            case recovery.PeerLost():
                self.on_lost(event, now)
            case recovery.RailChanged():
                self.schedule.ledger.reasons[event.rail, self.epoch].add(event.reason)

    def on_freeze(self, freeze: recovery.Freeze, now: int) -> None:
        """Stop; answer a moment later."""
        assert freeze.epoch == self.epoch + 1
        if self.freeze is None:
            self.frozen_at = now
        else:
            assert freeze.attempt > self.freeze.attempt
            assert freeze.alive & ~self.freeze.alive == 0, "a later attempt has more rails"
        self.freeze = freeze
        self.schedule.soon(self, partial(self.answer, freeze))

    def answer(self, freeze: recovery.Freeze) -> None:
        """Halt what is not alive, and say how far this rank is."""
        for rail in range(self.schedule.rails):
            if not freeze.alive >> rail & 1:
                self.halt(rail)
        draw = self.schedule.random.randint
        rails = range(self.schedule.rails)
        position = recovery.Position(
            self.submitted,
            [draw(0, self.submitted) for _ in rails],
            [draw(0, self.submitted) for _ in rails],
        )
        given = self.schedule.ledger.positions.setdefault((freeze.epoch, freeze.attempt), {})
        given[self.rank] = position
        self.machine.frozen(freeze, position, self.schedule.network.now)

    def abandon(self, order: recovery.Abandon) -> None:
        """Halt an incarnation, unless it is past."""
        if self.incarnation[order.rail] == order.incarnation:
            self.halt(order.rail)

    def halt(self, rail: int) -> None:
        """Halt a main lane."""
        if not self.running[rail]:
            return
        self.running[rail] = False
        incarnation = self.incarnation[rail]
        marks = [self.mark[rail] + tree for tree in range(MARKS)]
        self.schedule.ledger.marks.setdefault((rail, incarnation), {})[self.rank] = marks
        self.machine.halted(rail, marks, self.schedule.network.now)

    def on_commit(self, commit: recovery.Commit, now: int) -> None:
        """Compare the decision with everybody's, and go on."""
        assert self.freeze is not None, "a commit without a freeze"
        assert (commit.epoch, commit.alive) == (self.freeze.epoch, self.freeze.alive)
        content = (
            commit.alive,
            commit.boundary,
            *((reach.done, reach.rank, reach.least) for reach in (*commit.main, *commit.repair)),
        )
        known = self.schedule.ledger.commits.setdefault(commit.epoch, content)
        assert known == content, f"epoch {commit.epoch} is {content} on rank {self.rank}, {known} on another"
        assert commit.boundary >= self.submitted, "a call beyond the boundary has been submitted"
        self.schedule.check_commit(commit, self.freeze.attempt)
        for rail in rails_of(commit.alive):
            assert self.running[rail], f"rail {rail} is alive, but halted on rank {self.rank}"
        self.epoch, self.freeze = commit.epoch, None
        self.changes.append((commit.boundary, rails_of(commit.alive)))
        self.schedule.applied(self, commit, now)

    def on_restart(self, restart: recovery.Restart) -> None:
        """Start the lane again, from beyond what anybody used."""
        rail = restart.rail
        assert not self.running[rail], f"rail {rail} is restarted while it runs"
        assert restart.incarnation > self.incarnation[rail]
        for rank, marks in self.schedule.last_marks(rail, restart.incarnation).items():
            assert all(base >= mark for base, mark in zip(restart.bases, marks, strict=True)), (
                f"{rank}'s marks"
            )
        self.running[rail] = True
        self.incarnation[rail] = restart.incarnation
        self.mark[rail] = max(restart.bases, default=0)
        self.schedule.join_trial(self, rail, restart.incarnation)

    def on_lost(self, event: recovery.PeerLost, now: int) -> None:
        """End."""
        # The farewells of the others do not reach a rank that has no rail, and then they are gone as well.
        gone = (
            self.schedule.hosts[event.rank].lost is not None
            and len(self.schedule.touched) == self.schedule.rails
        )
        assert gone or event.rank in self.schedule.dead, (
            f"rank {event.rank} is lost, says rank {self.rank}: {event.reason}"
        )
        self.lost = event
        self.schedule.lost_at[self.rank] = now


class Schedule:
    """One run, drawn from a seed."""

    def __init__(
        self,
        seed: int,
        tamper: Callable[[Schedule], Tamper] | None = None,
        network: type[Network] = Network,
        host: type[Host] = Host,
    ) -> None:
        self.random = random.Random(seed)
        self.ranks = self.random.choice((2, 2, 3, 3, 4, 5, 8))
        self.rails = self.random.choice((2, 2, 2, 3, 4))
        self.ledger = Ledger()
        self.faults: Counter[str] = Counter()
        self.dead: set[int] = set()
        self.lost_at: dict[int, int] = {}
        self.touched: set[int] = set()  # rails that something was done to
        self.repaired_at = 0
        self.trial_fails = self.random.choice((0.0, 0.0, 0.3))
        self.disturbed_until = 0  # some rank or switch stands still, or a rank has no way to rank 0
        path = self.draw_path()
        self.quiet = path.loss <= 0.02 and not (path.reorder and path.late > 3 * MILLISECOND)
        self.network = network([path] * self.rails, self.random.getrandbits(32), None)
        if tamper is not None:
            self.network.tamper = tamper(self)
        self.stood_until = [-PEER_TIMEOUT] * self.ranks
        self.hosts: list[Host] = []
        self.make_host = host

    def options(self, rank: int) -> recovery.Options:
        """The machine's options."""
        return recovery.Options(
            rank=rank, world_size=self.ranks, rails=self.rails, token=TOKEN, peer_timeout=PEER_TIMEOUT
        )

    def draw_path(self) -> Path:
        """Draw how rails treat datagrams."""
        choice = self.random.choice
        return Path(
            delay=choice((50_000, 200_000, 2 * MILLISECOND)),
            jitter=choice((20_000, MILLISECOND, 8 * MILLISECOND)),
            loss=choice((0.0, 0.0, 0.01, 0.2)),
            duplicate=choice((0.0, 0.0, 0.2)),
            reorder=choice((0.0, 0.0, 0.05)),
            late=choice((3, 30)) * MILLISECOND,
        )

    # --- what happens ---

    def run(self) -> None:
        """Begin, let faults happen and be repaired, and look at what has become of it."""
        for rank in range(self.ranks):
            self.hosts.append(self.make_host(self, rank))
        for host in self.hosts:
            self.network.add(host)
            self.network.at(self.network.now, partial(self.work, host))
        late = self.random.choice((0, 0, 300)) * MILLISECOND
        if late:
            self.stand(self.random.randrange(self.ranks), late)
        end = 300 * MILLISECOND + FAULTS
        for _ in range(self.random.randint(1, 5)):
            when = self.random.randint(300 * MILLISECOND, end)
            self.network.at(when, self.random.choice(KINDS)[1].__get__(self))
        self.network.run(end + SECOND)  # repairs come at most a second after their faults
        patience = SETTLED + (PEER_TIMEOUT if self.dead else 0)
        self.network.run(max(end + SECOND, self.repaired_at) + patience, self.settled)
        self.check()

    def work(self, host: Host) -> None:
        """Submit and complete some calls, again and again."""
        for _ in range(self.random.choice((0, 1, 1, 3))):
            host.submit()
        host.complete()
        self.network.at(self.network.now + self.random.randint(1, 20) * MILLISECOND, partial(self.work, host))

    def soon(self, host: Host, action: Callable[[], None]) -> None:
        """Let the agent do something when its process runs, in a moment or at once."""
        delay = self.random.choice((0, 0, 1, 5)) * MILLISECOND
        self.network.at(self.network.now + delay, partial(self.act, host, action))

    def act(self, host: Host, action: Callable[[], None]) -> None:
        """Do it, unless the process stands still or is dead."""
        process = self.network.processes[host.rank]
        if not process.alive or host.lost is not None:
            return
        if self.network.now < process.stands_until:
            self.network.at(process.stands_until, partial(self.act, host, action))
            return
        action()
        self.network.turn(host.rank)

    def join_trial(self, host: Host, rail: int, incarnation: int) -> None:
        """A rank has restarted a rail: the trial runs when all have, if the rail carries."""
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
        """Tell the machine of a trial's result."""
        host.machine.restarted(rail, incarnation, passed, self.network.now)

    def last_marks(self, rail: int, incarnation: int) -> dict[int, list[int]]:
        """What ranks told when they halted the incarnation before, or an earlier one."""
        known = [number for at, number in self.ledger.marks if at == rail and number < incarnation]
        latest: dict[int, list[int]] = {}
        for number in sorted(known):
            latest.update(self.ledger.marks[rail, number])
        return latest

    # --- faults, each repaired before long ---

    def repair(self, action: Callable[[], None], within: tuple[int, int]) -> None:
        """Plan the end of a fault."""
        when = self.network.now + self.random.randint(*within) * MILLISECOND
        self.repaired_at = max(self.repaired_at, when)
        self.network.at(when, action)

    def disturb(self, until: int) -> None:
        """Rounds may take longer until then."""
        self.disturbed_until = max(self.disturbed_until, until)

    def draw_rail(self) -> int:
        """Draw a rail that something is done to."""
        rail = self.random.randrange(self.rails)
        self.touched.add(rail)
        return rail

    def cut_at(self, rail: int, ranks: list[int], within: tuple[int, int]) -> None:
        """Cut a rail at hosts, one way or both, until it is repaired."""
        ways = self.random.choice((("out",), ("in",), ("out", "in"), ("out", "in")))
        self.network.cut(rail, ranks, ways)
        self.repair(partial(self.network.cut, rail, ranks, ways, False), within)
        for rank in range(self.ranks):
            if not any(self.two_way(each, rank) for each in range(self.rails)):
                self.disturb(self.repaired_at)

    def two_way(self, rail: int, rank: int) -> bool:
        """Whether a rank and rank 0 reach each other on a rail."""
        return self.network.passes(rail, 0, rank) and self.network.passes(rail, rank, 0)

    def cut_host(self) -> None:
        """A host's link on one rail."""
        self.cut_at(self.draw_rail(), [self.random.randrange(self.ranks)], (20, 900))

    def cut_rail(self) -> None:
        """A rail, at all hosts."""
        self.cut_at(self.draw_rail(), list(range(self.ranks)), (20, 900))

    def flap(self) -> None:
        """A rail, again and again."""
        rail, rank = self.draw_rail(), self.random.randrange(self.ranks)
        for turn in range(3):
            when = self.network.now + turn * 250 * MILLISECOND
            self.repaired_at = max(self.repaired_at, when + 120 * MILLISECOND)
            self.network.at(when, partial(self.cut_at, rail, [rank], (100, 120)))

    def break_lane(self) -> None:
        """A connection of a main lane breaks."""
        rail, host = self.draw_rail(), self.random.choice(self.hosts)
        self.repaired_at = max(self.repaired_at, self.network.now)
        if host.running[rail]:
            self.act(host, lambda: host.machine.suspect(rail, "its connection broke", self.network.now))

    def obstruct(self) -> None:
        """Something stands in the way of a rail at a host."""
        rail, host = self.draw_rail(), self.random.choice(self.hosts)
        self.act(host, lambda: host.machine.set_obstacle(rail, "no carrier", self.network.now))
        self.repair(
            lambda: self.act(host, lambda: host.machine.set_obstacle(rail, "", self.network.now)), (20, 900)
        )

    def stand(self, rank: int, duration: int) -> None:
        """Let a process stand still, and run a while before it does so again."""
        if self.network.now - self.stood_until[rank] < PEER_TIMEOUT // 2:
            return
        self.stood_until[rank] = self.network.now + duration
        self.network.stand(rank, duration)
        self.disturb(self.network.now + duration)
        self.repaired_at = max(self.repaired_at, self.network.now + duration)

    def stand_still(self) -> None:
        """A process stands still, for less than the others' patience."""
        self.stand(self.random.randrange(self.ranks), self.random.choice((15, 60, 300, 800)) * MILLISECOND)

    def hold_switch(self) -> None:
        """A switch stands still for a moment."""
        rail = self.draw_rail()
        duration = self.random.choice((30, 60, 120, 400)) * MILLISECOND
        self.network.hold(rail, duration)
        self.repaired_at = max(self.repaired_at, self.network.now + duration)

    def die(self) -> None:
        """A rank dies."""
        if self.dead:
            return
        rank = self.random.randrange(self.ranks)
        self.dead.add(rank)
        self.died_at = self.network.now
        self.network.kill(rank, refuses=self.random.random() < 0.5)

    # --- what must be ---

    def check_commit(self, commit: recovery.Commit, attempt: int) -> None:
        """Compare a decision with what the ranks said."""
        said = self.ledger.positions[commit.epoch, attempt]
        assert set(said) == set(range(self.ranks)), f"epoch {commit.epoch} without all ranks' answers"
        assert commit.boundary == max(position.submitted for position in said.values())
        for kind, reaches in (("main", commit.main), ("repair", commit.repair)):
            for rail, reach in enumerate(reaches):
                done = [getattr(said[rank], kind)[rail] for rank in range(self.ranks)]
                assert (reach.done, reach.least) == (max(done), min(done))
                assert reach.rank == done.index(max(done))

    def applied(self, host: Host, commit: recovery.Commit, now: int) -> None:
        """A rank has applied a decision."""
        for rail in range(self.rails):
            assert commit.alive >> rail & 1 or rail in self.touched or not self.quiet, (
                f"rail {rail} was taken down, but nothing was wrong with it"
            )
        since = max(host.frozen_at, self.disturbed_until)
        assert now - since <= ROUND, f"rank {host.rank} was frozen for {(now - since) / MILLISECOND} ms"

    def living(self) -> list[Host]:
        """The ranks that are not dead."""
        return [host for host in self.hosts if host.rank not in self.dead]

    def settled(self) -> bool:
        """Whether everything is as it was at the start, or all have heard of the death."""
        if self.dead:
            return all(host.lost is not None for host in self.living())
        return (
            all(host.freeze is None and host.machine.alive == (1 << self.rails) - 1 for host in self.hosts)
            and len({host.epoch for host in self.hosts}) == 1
        )

    def most_datagrams(self, rank: int) -> int:
        """What a rank may send: beats, and to each of those it agrees with a state as often as it is due."""
        peers = self.ranks - 1 if rank == 0 else 1
        seconds = self.network.now / SECOND + 0.5
        return int(self.rails * seconds * (100 + 220 * peers))

    def check(self) -> None:
        """Look at the end."""
        for host in self.living():
            stats = host.machine.stats()
            assert not stats["violations"] + stats["malformed"] + stats["strangers"], f"{stats}"
            assert stats["rounds"] == host.epoch
            assert stats["sent"] <= self.most_datagrams(host.rank), f"rank {host.rank}: {stats}"
        if self.dead:
            late = [host.rank for host in self.living() if host.lost is None]
            assert not late, f"ranks {late} have not heard that {self.dead} died"
            return
        states = [(host.rank, bin(host.machine.alive), host.epoch, host.freeze) for host in self.hosts]
        assert self.settled(), f"not all rails came back: {states}, now {self.network.now / MILLISECOND} ms"
        least = min(host.done for host in self.hosts)
        assert least > 0


KINDS: tuple[tuple[str, Callable[[Schedule], None]], ...] = (
    ("cut at a host", Schedule.cut_host),
    ("cut at a host", Schedule.cut_host),
    ("cut rail", Schedule.cut_rail),
    ("flapping rail", Schedule.flap),
    ("broken lane", Schedule.break_lane),
    ("obstacle", Schedule.obstruct),
    ("process that stands still", Schedule.stand_still),
    ("switch that stands still", Schedule.hold_switch),
    ("death", Schedule.die),
)


@dataclass(frozen=True)
class Outcome:
    """What became of one seed."""

    seed: int
    failure: str
    datagrams: int
    epochs: int


def run_seed(seed: int) -> Outcome:
    """Run the schedule of one seed."""
    schedule = Schedule(seed)
    failure = ""
    try:
        schedule.run()
    except AssertionError as error:
        failure = f"{error}"
    return Outcome(seed, failure, schedule.network.sent, max(host.epoch for host in schedule.hosts))


def replay_command(seed: int) -> str:
    """The command that runs a seed again."""
    return f"cd tests && python -m protocol.recovery_schedules --seeds {seed}:{seed + 1}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run seeds; the exit status is 1 if one failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seeds", default="0:1000", help="FIRST:END")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes")
    options = parser.parse_args(arguments)
    first, end = map(int, options.seeds.split(":"))
    begin, failed, datagrams, epochs = time.perf_counter(), 0, 0, 0
    with ProcessPoolExecutor(options.workers) as pool:
        for outcome in pool.map(run_seed, range(first, end), chunksize=min(50, end - first)):
            datagrams += outcome.datagrams
            epochs += outcome.epochs
            if outcome.failure:
                failed += 1
                print(f"seed {outcome.seed}: {outcome.failure}\n  replay: {replay_command(outcome.seed)}")
    took = time.perf_counter() - begin
    print(
        f"{end - first} schedules, {datagrams} datagrams, {epochs} decisions: {failed} failed ({took:.1f} s)"
    )
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
