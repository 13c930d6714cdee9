# SPDX-License-Identifier: Apache-2.0
"""The part of a switch that all programs share: forwarding of ordinary frames by the controller's routes."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod

from railweave.controller import desired, tables
from railweave.controller.routes import Routes, trunk_ends
from railweave.controller.southbound import SwitchLink
from railweave.controller.state import SwitchState, Update
from railweave.topologies.model import Plane, Switch


class Forwarder(ABC):
    """A switch that gets its routes from `Forwarding`. Subclasses write its state and update `may_flood`."""

    link: SwitchLink

    def __init__(self, plane: Plane, switch: Switch) -> None:
        """Prepare a switch of a plane."""
        self.name = switch.name
        self.plane = plane
        self.ready = asyncio.Event()  # reconciled since the controller started
        self.flooding: frozenset[int] = frozenset()  # trunk ports that broadcasts should leave by
        self._routes = Routes()
        self._sources = desired.source_guard(plane, switch.name)
        self._trunks = frozenset(port for name, port in trunk_ends(plane) if name == switch.name)
        # Trunk ports that broadcasts may leave by, until the switch confirms a change. An earlier controller
        # may have set any of these ports.
        self.may_flood = self._trunks

    @property
    def ports(self) -> frozenset[int]:
        """The ports with a trunk or a NIC."""
        return self._trunks | self._routes.nics

    @property
    def usable(self) -> bool:
        """Whether the switch accepts requests now."""
        return self.link.up and self.ready.is_set()

    def guard(self) -> SwitchState:
        """Return the entries of the source guard; none for a program without it, as on some Tofinos."""
        return self._sources if self.guarded else SwitchState()

    @property
    def guarded(self) -> bool:
        """Whether the switch's program has a source guard."""
        return self.link.has(tables.FORGED_SOURCES)

    def follow(self, routes: Routes) -> bool:
        """Set new routes, and stop flooding to ports outside their tree. Return whether anything changes."""
        changes = self._routes.entries != routes.entries or not self.flooding <= routes.tree
        self._routes = routes
        self.flooding &= routes.tree
        return changes

    @abstractmethod
    async def reconcile(self) -> list[Update]:
        """Read back, compare and write. Return the written updates. SwitchUnavailable if a step fails."""

    def _flooded(self, state: SwitchState) -> frozenset[int]:
        """Return the trunk ports to which a switch in this state floods."""
        return self._trunks & tables.flooded(state.multicasts)
