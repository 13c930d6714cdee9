# SPDX-License-Identifier: Apache-2.0
"""Recovery machines of all ranks on a simulated network of several rails, in virtual time.

Hosts send datagrams to each other over the rails. Rails can be cut, and their switches can stand still.
"""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from typing import Protocol

from protocol.virtual_time import MICROSECOND, MILLISECOND, Link, Process, World

from railweave._native import recovery

SOCKET = 400  # datagrams that a socket holds
QUOTED = 576 - 20 - 8 - 20 - 8  # bytes of a datagram that an ICMP error quotes
SECRET = b"of the ranks of all simulations."
QUIET = Link(delay=100 * MICROSECOND, jitter=50 * MICROSECOND, late=3 * MILLISECOND)

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


class Agent(Protocol):
    """The driver of a machine, which acts on its events."""

    machine: recovery.Recovery

    def on_event(self, event: Event, now: int) -> None:
        """Act on an event, before datagrams are sent."""


class Rank(Process):
    """A rank's process with its machine and agent."""

    world: Network

    def __init__(self, world: Network, rank: int, agent: Agent) -> None:
        super().__init__(world, agent.machine)
        self.rank = rank
        self.agent = agent
        self.alive = True
        self.refuses = False  # the process is dead, and its host refuses datagrams

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

    def event(self, event: Event) -> None:
        """Pass an event to the agent."""
        self.agent.on_event(event, self.world.now)

    def transmit(self, packet: tuple[int, int, bytes]) -> None:
        """Put a datagram on a rail."""
        self.world.put(self.rank, *packet)


class Network(World):
    """Ranks that are connected to every rail. A link's name is the rail, the sender and the receiver."""

    spins = 20_000

    def __init__(self, rails: int, link: Link, seed: int) -> None:
        super().__init__(seed, link)
        self.rails = rails
        self.ranks: list[Rank] = []
        self.sent = 0
        # Cuts by (rail, rank, "out" or "in"), counted because faults overlap.
        self.cuts: defaultdict[tuple[int, int, str], int] = defaultdict(int)
        self._held_until = [0] * rails  # when each rail's switch runs again

    # --- for tests ---

    def add(self, agent: Agent) -> None:
        """Add the next rank."""
        self.ranks.append(Rank(self, len(self.ranks), agent))
        self.at(self.now, self.ranks[-1].turn)

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
        process = self.ranks[rank]
        process.alive, process.refuses = False, refuses
        process.waiting.clear()

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
        process = self.ranks[receiver]
        if not self.passes(rail, sender, receiver):
            return
        if process.alive:
            process.arrive(rail, sender, datagram)
        elif process.refuses and self.passes(rail, receiver, sender):
            refusal = partial(self._refuse, rail, sender, receiver, datagram)
            self.at(self.now + self.link.delay, refusal)

    def _refuse(self, rail: int, sender: int, receiver: int, datagram: bytes) -> None:
        process = self.ranks[sender]
        if process.alive and self.now >= process.asleep_until:
            process.machine.unreachable(rail, receiver, datagram[:QUOTED], self.now)
            process.turn()
