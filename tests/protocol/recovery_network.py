# SPDX-License-Identifier: Apache-2.0
"""Recovery machines of all ranks on a simulated network of several rails, in virtual time.

A datagram goes from a host over a rail to another; loss, duplication, jitter, overtaking, and what is cut
are a rail's. A rank's process may stand still: what comes meanwhile waits in its sockets, and is read before
its timers run, as the agent does.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from railweave._native import recovery

MICROSECOND = 1_000
MILLISECOND = 1_000_000
SECOND = 1_000_000_000
SPINS = 20_000  # actions at one instant
SOCKET = 400  # datagrams that a socket holds
QUOTED = 576 - 20 - 8 - 20 - 8  # bytes of one in an ICMP error
SECRET = b"of the ranks of all simulations."

Event = (
    recovery.Prepare
    | recovery.Commit
    | recovery.Restart
    | recovery.Halt
    | recovery.PeerLost
    | recovery.AllCompleted
    | recovery.AllSubmitted
    | recovery.RailChanged
)


@dataclass(frozen=True)
class Path:
    """How a rail treats datagrams. Times in nanoseconds."""

    delay: int = 100 * MICROSECOND
    jitter: int = 50 * MICROSECOND
    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0  # share that is late
    late: int = 3 * MILLISECOND


class Agent(Protocol):
    """What drives a machine and is told of its events."""

    machine: recovery.Recovery

    def on_event(self, event: Event, now: int) -> None:
        """Act on an event, before datagrams are sent."""


# Tampers with a datagram where it arrives: (rail, sender, receiver, bytes) to what comes, or to nothing.
Tamper = Callable[[int, int, int, bytes], bytes]


@dataclass
class Process:
    """A rank's process: whether it runs, and what waits in its sockets."""

    agent: Agent
    inbox: deque[tuple[int, int, bytes]] = field(default_factory=deque)  # rail, sender, datagram
    stands_until: int = 0
    wakes_at: int | None = None
    alive: bool = True
    refuses: bool = False  # dead, and its host says so


class Network:
    """The world: `at` plans things, `run` lets time pass."""

    def __init__(self, paths: list[Path], seed: int, tamper: Tamper | None = None) -> None:
        self.paths = paths
        self.random = random.Random(seed)
        self.tamper = tamper
        self.now = 0
        self.processes: list[Process] = []
        self.sent = 0
        self._plan: list[tuple[int, int, Callable[[], None]]] = []
        self._number = itertools.count()
        # What is cut, counted, since faults overlap: (rail, rank, "out" or "in").
        self.cuts: defaultdict[tuple[int, int, str], int] = defaultdict(int)
        self._held_until = [0] * len(paths)  # a rail whose switch stands still

    # --- what tests do ---

    def add(self, agent: Agent) -> None:
        """Bring in the next rank."""
        self.processes.append(Process(agent))
        self._wake(len(self.processes) - 1, self.now)

    def at(self, when: int, action: Callable[[], None]) -> None:
        """Plan an action."""
        heapq.heappush(self._plan, (max(when, self.now), next(self._number), action))

    def run(self, until: int, done: Callable[[], bool] | None = None) -> None:
        """Let time pass; `done` ends it early."""
        actions = 0
        while self._plan and self._plan[0][0] <= until:
            when, _, action = heapq.heappop(self._plan)
            actions = 0 if when > self.now else actions + 1
            assert actions < SPINS, "time stands still: a deadline is due, and stays so"
            self.now = when
            action()
            if done is not None and done():
                return
        self.now = until

    def cut(self, rail: int, ranks: list[int], ways: tuple[str, ...], cut: bool = True) -> None:
        """Take paths away, or give them back."""
        for rank in ranks:
            for way in ways:
                self.cuts[rail, rank, way] += 1 if cut else -1

    def hold(self, rail: int, duration: int) -> None:
        """The rail's switch stands still, and then gives out what it holds."""
        self._held_until[rail] = max(self._held_until[rail], self.now + duration)

    def stand(self, rank: int, duration: int) -> None:
        """The rank's process stands still."""
        process = self.processes[rank]
        process.stands_until = max(process.stands_until, self.now + duration)
        self._wake(rank, process.stands_until)

    def kill(self, rank: int, refuses: bool) -> None:
        """The rank dies; with its host, or only the process, which the host then says to whoever sends."""
        process = self.processes[rank]
        process.alive = False
        process.refuses = refuses
        process.inbox.clear()

    def passes(self, rail: int, sender: int, receiver: int) -> bool:
        """Whether a rail carries from one to the other now."""
        return not self.cuts[rail, sender, "out"] and not self.cuts[rail, receiver, "in"]

    def whole(self, rail: int) -> bool:
        """Whether nothing of the rail is cut."""
        return not any(count for (cut, _, _), count in self.cuts.items() if cut == rail)

    # --- how it works ---

    def turn(self, rank: int) -> None:
        """One turn of the rank's loop: sockets, timers, events, datagrams."""
        process = self.processes[rank]
        if not process.alive:
            return
        if self.now < process.stands_until:
            self._wake(rank, process.stands_until)
            return
        machine = process.agent.machine
        while process.inbox:
            rail, sender, datagram = process.inbox.popleft()
            machine.receive(rail, sender, datagram, self.now)
        self.timers(process)
        while (event := machine.poll()) is not None:
            process.agent.on_event(event, self.now)
        while (datagram := machine.transmit(self.now)) is not None:
            self.send(rank, *datagram)
        deadline = machine.deadline()
        if deadline is not None:
            self._wake(rank, deadline)

    def timers(self, process: Process) -> None:
        """Run the machine's timers, if one is due."""
        deadline = process.agent.machine.deadline()
        if deadline is not None and deadline <= self.now:
            process.agent.machine.expire(self.now)

    def _wake(self, rank: int, when: int) -> None:
        process = self.processes[rank]
        when = max(when, self.now)
        if process.wakes_at is not None and self.now < process.wakes_at <= when:
            return
        process.wakes_at = when
        self.at(when, partial(self._woken, rank, when))

    def _woken(self, rank: int, when: int) -> None:
        process = self.processes[rank]
        if process.wakes_at == when:
            process.wakes_at = None
        self.turn(rank)

    def send(self, sender: int, rail: int, receiver: int, datagram: bytes) -> None:
        """Put a datagram on a rail."""
        self.sent += 1
        draw, path = self.random.random, self.paths[rail]
        if not self.passes(rail, sender, receiver):
            return
        for _ in range(2 if path.duplicate and draw() < path.duplicate else 1):
            if path.loss and draw() < path.loss:
                continue
            when = max(self.now, self._held_until[rail]) + path.delay + int(draw() * path.jitter)
            if path.reorder and draw() < path.reorder:
                when += path.late
            self.at(when, partial(self._arrive, rail, sender, receiver, datagram))

    def _arrive(self, rail: int, sender: int, receiver: int, datagram: bytes) -> None:
        process = self.processes[receiver]
        if not self.passes(rail, sender, receiver):
            return
        if not process.alive:
            if process.refuses and self.passes(rail, receiver, sender):
                self.at(
                    self.now + self.paths[rail].delay, partial(self._refuse, rail, sender, receiver, datagram)
                )
            return
        if self.tamper is not None:
            datagram = self.tamper(rail, sender, receiver, datagram)
        if datagram and len(process.inbox) < SOCKET:
            process.inbox.append((rail, sender, datagram))
        self.turn(receiver)

    def _refuse(self, rail: int, sender: int, receiver: int, datagram: bytes) -> None:
        process = self.processes[sender]
        if process.alive and self.now >= process.stands_until:
            process.agent.machine.unreachable(rail, receiver, datagram[:QUOTED], self.now)
            self.turn(sender)
