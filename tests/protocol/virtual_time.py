# SPDX-License-Identifier: Apache-2.0
"""Virtual time with processes that may have no core: a network is a World with machines in Processes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from railweave.sdk import virtual_time
from railweave.sdk.virtual_time import (
    FRAMING,
    MICROSECOND,
    MILLISECOND,
    SECOND,
    Action,
    HangError,
    Link,
    Tamper,
)

__all__ = [
    "FRAMING",
    "MICROSECOND",
    "MILLISECOND",
    "SECOND",
    "Action",
    "HangError",
    "Link",
    "Process",
    "Tamper",
    "World",
]


class World(virtual_time.World):
    """A world whose processes may lose their core."""

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
