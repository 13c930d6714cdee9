# SPDX-License-Identifier: Apache-2.0
"""Virtual time: planned actions, links with faults, and processes that may have no core.

Everything random comes from one seed. A simulated network is a World with machines in Processes.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

MICROSECOND, MILLISECOND, SECOND = 1_000, 1_000_000, 1_000_000_000
FRAMING = 42  # bytes of Ethernet, IPv4 and UDP

Action = Callable[[], None]
Tamper = Callable[[object, bytes], bytes | None]
"""Gets a link's name and a packet, and returns the packet that arrives; None: nothing does."""


class HangError(AssertionError):
    """Virtual time ran past its bound, or nothing is under way."""


@dataclass(frozen=True)
class Link:
    """The properties of one direction of a link. Probabilities are per packet, times in nanoseconds."""

    delay: int = 50 * MICROSECOND
    jitter: int = 0  # uniform, per packet: reorders
    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0  # share of the packets that are late
    late: int = 0  # the most that such a packet is late
    packet_time: int = 0  # the time for which a packet with lanes occupies the link; 0: unlimited rate
    rate_bps: int = 0  # replaces `packet_time`
    queue: int | None = None  # the link drops a packet that would wait longer

    def occupied(self, size: int) -> int:
        """Return the time that a packet of `size` payload bytes occupies the link."""
        if self.rate_bps:
            return (size + FRAMING) * 8 * SECOND // self.rate_bps
        return self.packet_time if size > 16 else self.packet_time // 16  # a probe is a small part


class World:
    """A clock, planned actions, and links by name."""

    spins = 10**6  # actions at one instant

    def __init__(self, seed: int, link: Link | None = None) -> None:
        self.now = 0
        self.random = random.Random(seed)
        self.link = link or Link()
        self.links: dict[object, Link] = {}  # exceptions from `link`
        self.tamper: Tamper | None = None
        self.longest_queue = 0
        self._free_at: dict[object, int] = {}
        self._queue: list[list[Any]] = []  # instant, number, action; a cancelled one has no action
        self._numbers = itertools.count()
        self._spun = 0

    def at(self, when: int, action: Action) -> list[Any]:
        """Plan an action. Return its entry for `cancel`."""
        entry = [max(when, self.now), next(self._numbers), action]
        heapq.heappush(self._queue, entry)
        return entry

    @staticmethod
    def cancel(entry: list[Any]) -> None:
        """Cancel a planned action."""
        entry[2] = None

    def next_at(self) -> int | None:
        """Return the time of the next action, or None if nothing is planned."""
        while self._queue and self._queue[0][2] is None:
            heapq.heappop(self._queue)
        return self._queue[0][0] if self._queue else None

    def step(self) -> bool:
        """Advance to the next action. Return False if nothing is planned."""
        when = self.next_at()
        if when is None:
            return False
        self._spun = 0 if when > self.now else self._spun + 1
        assert self._spun < self.spins, "time stands still: a deadline is due, and stays so"
        self.now = max(self.now, when)
        heapq.heappop(self._queue)[2]()
        return True

    def run(self, done: Callable[[], bool], within: int) -> None:
        """Advance until `done`. Raise HangError after `within` ns, or if nothing is under way."""
        bound = self.now + within
        while not done():
            if not self.step() or self.now > bound:
                raise HangError(f"at {self.now} ns: {self.describe()}")

    def run_until(self, when: int, done: Callable[[], bool] = lambda: False) -> None:
        """Run all actions up to a time, or until `done`."""
        while (following := self.next_at()) is not None and following <= when:
            self.step()
            if done():
                return
        self.now = max(self.now, when)

    def drain(self, within: int | None = None) -> None:
        """Run all planned actions. Raise HangError if they take over `within` ns."""
        bound = None if within is None else self.now + within
        while self.step():
            if bound is not None and self.now > bound:
                raise HangError(f"at {self.now} ns: {self.describe()}")

    def describe(self) -> str:
        """Describe the state of all machines, for the message of a HangError."""
        return "nothing is known of the machines"

    def send(self, name: object, data: bytes, arrive: Callable[[bytes], object]) -> None:
        """Put a packet on a link. It arrives once, twice or never."""
        link, chance, arrival = self.links.get(name, self.link), self.random.random, self.now
        lost = bool(link.loss) and chance() < link.loss
        if occupied := link.occupied(len(data)):
            begins = max(self.now, self._free_at.get(name, 0))
            if link.queue is not None and begins - self.now > link.queue:
                return self.lost(name, data)
            self.longest_queue = max(self.longest_queue, begins - self.now)
            self._free_at[name] = arrival = begins + occupied
        if lost:
            return self.lost(name, data)
        for _ in range(2 if link.duplicate and chance() < link.duplicate else 1):
            delay = link.delay + (int(chance() * (link.jitter + 1)) if link.jitter else 0)
            if link.reorder and chance() < link.reorder:
                delay += int(chance() * (link.late + 1))
            self.at(arrival + delay, partial(self._arrive, name, arrive, data))
        return None

    def _arrive(self, name: object, arrive: Callable[[bytes], object], data: bytes) -> None:
        changed = data if self.tamper is None else self.tamper(name, data)
        if changed is not None:
            arrive(changed)

    def lost(self, name: object, data: bytes) -> None:
        """Note a packet that a link has lost."""

    def take_core(self, stand: Callable[[int], None], share: float, within: int, rare: float = 0.0) -> None:
        """Call `stand` with pauses of 2 to 30 ms, which fill `share` of the time, until `within`.

        `rare` is the share of the pauses that last 60 to 100 ms.
        """
        draw = self.random
        busy = draw.uniform(60, 100) if draw.random() < rare else draw.uniform(2, 30)
        free = busy * (1 - share) / share * draw.uniform(0.5, 1.5)
        if self.now < within:
            stand(int(busy * MILLISECOND))
            again = self.now + int((busy + free) * MILLISECOND)
            self.at(again, partial(self.take_core, stand, share, within, rare))


class Process:
    """A machine in its loop. The loop receives packets, then runs timers, then sends packets.

    Packets wait in the socket while the process has no core.
    """

    def __init__(self, world: World, machine: Any) -> None:
        self.world = world
        self.machine = machine
        self.asleep_until = 0
        self.waiting: deque[tuple[Any, ...]] = deque()
        self._timer: list[Any] | None = None

    # --- for subclasses ---

    def receive(self, *packet: Any) -> None:
        """Hand the machine a packet."""
        self.machine.receive(*packet, self.world.now)

    def transmit(self, packet: Any) -> None:
        """Put a packet of the machine on a link."""
        raise NotImplementedError

    def event(self, event: Any) -> None:
        """Act on an event of the machine."""

    def deadline(self) -> int | None:
        """Return when the machine's next timer is due."""
        return self.machine.deadline()  # type: ignore[no-any-return]

    # --- the loop ---

    def arrive(self, *packet: Any) -> None:
        """Take a packet from a link."""
        self.waiting.append(packet)
        self.turn()

    def sleep(self, duration: int) -> None:
        """Take the core away for a time."""
        self.asleep_until = max(self.asleep_until, self.world.now + duration)
        self.world.at(self.asleep_until, self.turn)

    def turn(self) -> None:
        """Turn the loop once."""
        now = self.world.now
        if now < self.asleep_until:
            return
        while self.waiting:
            self.receive(*self.waiting.popleft())
        deadline = self.deadline()
        if deadline is not None and deadline <= now:
            self.machine.expire(now)
        self.pump()

    def pump(self) -> None:
        """Send packets, take events, and set the timer."""
        if self.world.now < self.asleep_until:
            return
        machine, now = self.machine, self.world.now
        while (packet := machine.transmit(now)) is not None:
            self.transmit(packet)
        while (event := machine.poll()) is not None:
            self.event(event)
        self._set_timer(self.deadline())

    def _set_timer(self, deadline: int | None) -> None:
        """Plan a turn for the deadline. An earlier turn stays planned, and then plans the next."""
        if self._timer is not None and (deadline is None or deadline < self._timer[0]):
            self.world.cancel(self._timer)
            self._timer = None
        if self._timer is None and deadline is not None:
            self._timer = self.world.at(deadline, self._due)

    def _due(self) -> None:
        self._timer = None
        self.turn()
