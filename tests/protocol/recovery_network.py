# SPDX-License-Identifier: Apache-2.0
"""Ranks on a simulated network of several rails, in virtual time.

Rails can be cut, and their switches can stand still. A rank has a recovery machine. It acts on the machine's
events, and checks them.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from protocol.virtual_time import MICROSECOND, MILLISECOND, Link, Process, World

from railweave._rigs import recovery

if TYPE_CHECKING:
    from protocol.recovery_schedules import Schedule

QUOTED = 576 - 20 - 8 - 20 - 8  # bytes of a datagram that an ICMP error quotes
SECRET = b"of the ranks of all simulations."
QUIET = Link(delay=100 * MICROSECOND, jitter=50 * MICROSECOND, late=3 * MILLISECOND)

HOLD = 250 * MILLISECOND  # a rail that went down must be fit for this time before a trial
TREES = 2  # trees of each rail
SOCKET = 400  # datagrams that a socket holds

Plan = tuple[int, ...]  # the rails of a call


class Network(World):
    """Ranks that are connected to every rail. A link's name is the rail, the sender and the receiver."""

    spins = 20_000

    def __init__(self, rails: int, link: Link, seed: int) -> None:
        super().__init__(seed, link)
        self.rails = rails
        self.hosts: list[Host] = []
        self.sent = 0
        # Cuts by (rail, rank, "out" or "in"), counted because faults overlap.
        self.cuts: defaultdict[tuple[int, int, str], int] = defaultdict(int)
        self._held_until = [0] * rails  # when each rail's switch runs again

    # --- for tests ---

    def cut(self, rail: int, ranks: list[int], ways: tuple[str, ...], cut: bool = True) -> None:
        """Cut paths, or with `cut=False` restore them."""
        for rank in ranks:
            for way in ways:
                self.cuts[rail, rank, way] += 1 if cut else -1

    def hold(self, rail: int, duration: int) -> None:
        """Stop the rail's switch for a time. It then sends the packets that it holds."""
        self._held_until[rail] = max(self._held_until[rail], self.now + duration)

    def kill(self, rank: int, refuses: bool) -> None:
        """Kill the rank's host, or with `refuses` only its process, so that the host refuses datagrams."""
        host = self.hosts[rank]
        host.alive, host.refuses = False, refuses
        host.waiting.clear()

    def passes(self, rail: int, sender: int, receiver: int) -> bool:
        """Return whether a rail now carries datagrams from sender to receiver."""
        return not self.cuts[rail, sender, "out"] and not self.cuts[rail, receiver, "in"]

    def whole(self, rail: int) -> bool:
        """Return whether no path of the rail is cut."""
        return not any(count for (cut, _, _), count in self.cuts.items() if cut == rail)

    # --- how it works ---

    def put(self, sender: int, rail: int, receiver: int, datagram: bytes) -> None:
        """Put a datagram on a rail."""
        self.sent += 1
        if self.passes(rail, sender, receiver):
            self.send((rail, sender, receiver), datagram, partial(self._leave, rail, sender, receiver))

    def _leave(self, rail: int, sender: int, receiver: int, datagram: bytes) -> None:
        """Forward a datagram from the rail's switch, as soon as the switch runs."""
        if self.now < self._held_until[rail]:
            self.at(self._held_until[rail], partial(self._leave, rail, sender, receiver, datagram))
            return
        host = self.hosts[receiver]
        if not self.passes(rail, sender, receiver):
            return
        if host.alive:
            host.arrive(rail, sender, datagram)
        elif host.refuses and self.passes(rail, receiver, sender):
            refusal = partial(self._refuse, rail, sender, receiver, datagram)
            self.at(self.now + self.link.delay, refusal)

    def _refuse(self, rail: int, sender: int, receiver: int, datagram: bytes) -> None:
        host = self.hosts[sender]
        if host.alive and self.now >= host.asleep_until:
            host.machine.unreachable(rail, receiver, datagram[:QUOTED], self.now)
            host.turn()


def rails_of(bits: int) -> Plan:
    """Return the numbers of the rails in a bit set."""
    return tuple(rail for rail in range(bits.bit_length()) if bits >> rail & 1)


@dataclass
class Ledger:
    """A record of all ranks' actions, to compare them."""

    commits: dict[int, tuple[object, ...]] = field(default_factory=dict)
    plans: dict[int, Plan] = field(default_factory=dict)  # by op
    positions: dict[tuple[int, int], dict[int, recovery.Position]] = field(default_factory=dict)
    # By rail and incarnation.
    chunk_numbers: dict[tuple[int, int], dict[int, list[int]]] = field(default_factory=dict)
    trials: defaultdict[tuple[int, int], set[int]] = field(default_factory=lambda: defaultdict(set))

    def last_chunk_numbers(self, rail: int, incarnation: int) -> dict[int, list[int]]:
        """Return each rank's chunk numbers from its last halt of an incarnation before this one."""
        known = [number for at, number in self.chunk_numbers if at == rail and number < incarnation]
        latest: dict[int, list[int]] = {}
        for number in sorted(known):
            latest.update(self.chunk_numbers[rail, number])
        return latest


class Host(Process):
    """A rank. It submits calls, halts and starts channels, and checks that each event is allowed."""

    world: Network

    def __init__(self, schedule: Schedule, rank: int) -> None:
        network = schedule.network
        super().__init__(network, recovery.Recovery(schedule.options(rank), network.now))
        self.schedule = schedule
        self.rank = rank
        self.alive = True
        self.refuses = False  # the process is dead, and its host refuses datagrams
        self.epoch = 0
        self.changes: list[tuple[int, Plan]] = [(0, tuple(range(schedule.rails)))]
        self.prepare: recovery.Prepare | None = None
        self.frozen_at = 0
        self.submitted = 0
        self.done = 0
        self.all_done = 0
        self.all_submitted = 0
        self.running = [True] * schedule.rails
        self.incarnation = [0] * schedule.rails
        self.mark = [0] * schedule.rails
        self.lost: recovery.PeerLost | None = None
        network.hosts.append(self)
        network.at(network.now, self.turn)

    # --- the loop ---

    def arrive(self, *packet: object) -> None:
        """Take a datagram, if the socket has room."""
        if len(self.waiting) < SOCKET:
            self.waiting.append(packet)
        self.turn()

    def turn(self) -> None:
        """Turn the loop once, unless the rank is dead."""
        if self.alive:
            super().turn()

    def pump(self) -> None:
        """Let the agent act first, so that its decisions are sent at once."""
        while self.world.now >= self.asleep_until and (event := self.machine.poll()) is not None:
            self.event(event)
        super().pump()

    def transmit(self, packet: tuple[int, int, bytes]) -> None:
        """Put a datagram on a rail."""
        self.world.put(self.rank, *packet)

    # --- calls ---

    def submit(self) -> None:
        """Submit the next call, on the rails that hold for its index."""
        if self.prepare is not None or self.lost is not None:
            return
        plan = next(plan for boundary, plan in reversed(self.changes) if boundary <= self.submitted)
        known = self.schedule.ledger.plans.setdefault(self.submitted, plan)
        assert known == plan, f"rank {self.rank} cuts op {self.submitted} among {plan}, another among {known}"
        self.submitted += 1
        for rail in plan:
            self.mark[rail] += 1

    def complete(self) -> None:
        """Complete all calls that every rank has submitted."""
        if self.lost is None:
            self.done = max(self.done, min(host.submitted for host in self.schedule.hosts))
            self.machine.completed(self.done)
            self.machine.submitted(self.submitted)

    # --- events of the machine ---

    def event(self, event: Any) -> None:
        """Act on an event."""
        now = self.world.now
        assert self.lost is None or isinstance(event, recovery.PeerLost), f"{event} after PeerLost"
        match event:
            case recovery.Prepare():
                self.on_prepare(event, now)
            case recovery.Commit():
                self.on_commit(event, now)
            case recovery.Restart():
                self.on_restart(event)
            case recovery.Halt():
                assert self.incarnation[event.rail] == event.incarnation
                self.schedule.soon(self, partial(self.halt_incarnation, event))
            case recovery.AllCompleted():
                assert self.all_done < event.op <= min(host.done for host in self.schedule.hosts)
                self.all_done = event.op
            case recovery.AllSubmitted():
                assert self.all_submitted < event.op <= min(host.submitted for host in self.schedule.hosts)
                self.all_submitted = event.op
            case recovery.PeerLost():
                self.on_lost(event)
            case recovery.RailChanged():
                assert bool(event.reason) == (event.state != recovery.State.UP)

    def on_prepare(self, prepare: recovery.Prepare, now: int) -> None:
        """Freeze this rank, and answer a moment later."""
        assert prepare.epoch == self.epoch + 1
        if self.prepare is None:
            self.frozen_at = now
        else:
            assert prepare.attempt > self.prepare.attempt
            assert prepare.alive & ~self.prepare.alive == 0, "a later attempt has more rails"
        self.prepare = prepare
        self.schedule.soon(self, partial(self.answer, prepare))

    def answer(self, prepare: recovery.Prepare) -> None:
        """Halt the rails that are not alive, and report this rank's position.

        Do nothing if the epoch has been decided in the meantime.
        """
        if prepare.epoch <= self.epoch:
            return
        for rail in range(self.schedule.rails):
            if not prepare.alive >> rail & 1:
                self.halt(rail)
        rails, draw = range(self.schedule.rails), self.schedule.random.randint
        done = ([draw(0, self.submitted) for _ in rails] for _ in range(2))
        position = recovery.Position(self.submitted, *done)
        given = self.schedule.ledger.positions.setdefault((prepare.epoch, prepare.attempt), {})
        given[self.rank] = position
        self.machine.prepared(prepare, position, self.world.now)

    def halt_incarnation(self, order: recovery.Halt) -> None:
        """Halt an incarnation, unless a later one has begun."""
        if self.incarnation[order.rail] == order.incarnation:
            self.halt(order.rail)

    def halt(self, rail: int) -> None:
        """Halt a rail's main channel."""
        if not self.running[rail]:
            return
        self.running[rail] = False
        incarnation = self.incarnation[rail]
        chunk_numbers = [self.mark[rail] + tree for tree in range(TREES)]
        self.schedule.ledger.chunk_numbers.setdefault((rail, incarnation), {})[self.rank] = chunk_numbers
        self.machine.halted(rail, chunk_numbers, self.world.now)

    def on_commit(self, commit: recovery.Commit, now: int) -> None:
        """Compare the decision with those of the other ranks, and go on."""
        assert self.prepare is not None, "a commit without a prepare"
        assert (commit.epoch, commit.alive) == (self.prepare.epoch, self.prepare.alive)
        content = (
            commit.alive,
            commit.boundary,
            *((reach.done, reach.rank, reach.least) for reach in (*commit.main, *commit.repair)),
        )
        known = self.schedule.ledger.commits.setdefault(commit.epoch, content)
        assert known == content, f"epoch {commit.epoch} is {content} on rank {self.rank}, {known} on another"
        assert commit.boundary >= self.submitted, "a call beyond the boundary has been submitted"
        self.schedule.check_commit(commit, self.prepare.attempt)
        for rail in rails_of(commit.alive):
            assert self.running[rail], f"rail {rail} is alive, but halted on rank {self.rank}"
        self.epoch, self.prepare = commit.epoch, None
        self.changes.append((commit.boundary, rails_of(commit.alive)))
        self.schedule.applied(self, commit, now)

    def on_restart(self, restart: recovery.Restart) -> None:
        """Restart the channel. Its chunk numbers begin after those that any rank has used."""
        rail = restart.rail
        assert not self.running[rail], f"rail {rail} is restarted while it runs"
        assert restart.incarnation > self.incarnation[rail]
        now = self.world.now
        assert now - self.schedule.down_since[rail] >= HOLD, f"rail {rail} is tried too early"
        for rank, chunk_numbers in self.schedule.ledger.last_chunk_numbers(rail, restart.incarnation).items():
            assert all(base >= mark for base, mark in zip(restart.bases, chunk_numbers, strict=True)), (
                f"{rank}'s chunk_numbers"
            )
        self.running[rail] = True
        self.incarnation[rail] = restart.incarnation
        self.mark[rail] = max(restart.bases, default=0)
        self.schedule.join_trial(self, rail, restart.incarnation)

    def on_lost(self, event: recovery.PeerLost) -> None:
        """Store that a peer is lost, which ends this rank's job."""
        # A rank without a rail gets no goodbyes. It may then report a peer that has itself lost a rank.
        gone = (
            self.schedule.hosts[event.rank].lost is not None
            and len(self.schedule.touched) == self.schedule.rails
        )
        assert gone or event.rank in self.schedule.dead, (
            f"rank {event.rank} is lost, says rank {self.rank}: {event.reason}"
        )
        self.lost = event
