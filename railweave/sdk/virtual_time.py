# SPDX-License-Identifier: Apache-2.0
"""Virtual time: planned actions, and links with faults. Everything random comes from one seed."""

from __future__ import annotations

import heapq
import itertools
import random
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
        """Begin at 0 ns. `link` has the properties of all links without an exception in `links`."""
        self.now = 0
        self.random = random.Random(seed)  # noqa: S311 - schedules, no secrets
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
        if self._spun >= self.spins:
            raise HangError(f"at {self.now} ns: time stands still: a deadline is due, and stays so")
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
