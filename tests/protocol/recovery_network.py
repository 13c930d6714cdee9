# SPDX-License-Identifier: Apache-2.0
"""A simulated network of several rails, which can be cut. Their switches can stand still."""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING

from protocol.virtual_time import MICROSECOND, MILLISECOND, Link, World

if TYPE_CHECKING:
    from protocol.recovery_hosts import Host

QUOTED = 576 - 20 - 8 - 20 - 8  # bytes of a datagram that an ICMP error quotes
SECRET = b"of the ranks of all simulations."
QUIET = Link(delay=100 * MICROSECOND, jitter=50 * MICROSECOND, late=3 * MILLISECOND)


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
