# SPDX-License-Identifier: Apache-2.0
"""Track the switches and links of the network that do not work."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from railweave.controller.trees import Link


class Health:
    """Holds dead switches, known from their P4Runtime sessions, and suspected links, reported by ranks.

    A suspicion expires after a while, because only traffic shows whether the link works again.
    """

    def __init__(self, suspect_s: float, forgotten: Callable[[str], None]) -> None:
        """Suspect links for `suspect_s` seconds. Then call `forgotten` with the plane."""
        self.dead: set[str] = set()
        self._suspect_s = suspect_s
        self._forgotten = forgotten
        self._suspects: dict[tuple[str, Link], asyncio.TimerHandle] = {}

    def suspects(self, plane: str) -> frozenset[Link]:
        """Return the links of a plane to avoid."""
        return frozenset(link for where, link in self._suspects if where == plane)

    def suspect(self, plane: str, links: Iterable[Link]) -> None:
        """Avoid these links for a while from now on."""
        loop = asyncio.get_running_loop()
        for link in links:
            if known := self._suspects.pop((plane, link), None):
                known.cancel()
            timer = loop.call_later(self._suspect_s, self._forget, plane, link)
            self._suspects[plane, link] = timer

    def forget_soon(self, plane: str, within_s: float) -> None:
        """Let a plane's suspicions expire within `within_s`, because no path avoids these links."""
        loop = asyncio.get_running_loop()
        for (where, link), timer in list(self._suspects.items()):
            if where == plane and timer.when() > loop.time() + within_s:
                timer.cancel()
                self._suspects[where, link] = loop.call_later(within_s, self._forget, where, link)

    def clear(self, switch: str) -> None:
        """Drop suspicions of a switch's links: the switch is back, and its failure may have caused them."""
        for plane, link in [known for known in self._suspects if switch in known[1]]:
            self._suspects.pop((plane, link)).cancel()

    def close(self) -> None:
        """Cancel all timers."""
        while self._suspects:
            self._suspects.popitem()[1].cancel()

    def _forget(self, plane: str, link: Link) -> None:
        del self._suspects[plane, link]
        self._forgotten(plane)
