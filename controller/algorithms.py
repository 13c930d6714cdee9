# SPDX-License-Identifier: Apache-2.0
"""The switches of a plane that run an in-network algorithm, and its jobs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from railweave.controller import desired
from railweave.controller.desired import Loss
from railweave.controller.errors import Refused, SwitchUnavailable
from railweave.controller.routes import trunk_ends
from railweave.controller.southbound import SwitchLink
from railweave.controller.state import SwitchState, Update, difference
from railweave.errors import UserError
from railweave.topologies.cluster import TlsFiles
from railweave.topologies.model import Nic, Plane, Switch

if TYPE_CHECKING:
    from railweave.sdk.plane import Program

LOG = logging.getLogger(__name__)


class AlgorithmSwitch:
    """A switch that runs an algorithm's program."""

    def __init__(
        self,
        plane: Plane,
        switch: Switch,
        program: Program,
        found: Callable[[str, SwitchState], None],
        tls: TlsFiles | None,
    ) -> None:
        """Prepare a switch. `found` gets its name and the state that it had before this controller."""
        self.name = switch.name
        self.plane = plane
        ends = [*((nic.switch, nic.port) for nic in plane.nics), *trunk_ends(plane)]
        self.ports = frozenset(port for name, port in ends if name == switch.name)
        self.ready = asyncio.Event()  # reconciled since the controller started
        self.link = SwitchLink(switch, program.artifact, self._connected, tls=tls)
        self.counters = program.counters
        self.losses: dict[tuple[str, int], Loss] = {}
        self.state = SwitchState()  # the desired one, without losses
        self._found = found
        self._lock = asyncio.Lock()

    async def reconcile(self) -> list[Update]:
        """Read back, compare and write. Return the written updates. SwitchUnavailable if a step fails."""
        async with self._lock:
            return await self._reconcile()

    async def clear(self) -> None:
        """Clear all registers, and write the entries again. SwitchUnavailable if a step fails."""
        async with self._lock:
            await self.link.wipe()
            await self._reconcile()

    async def _reconcile(self) -> list[Update]:
        wanted = desired.merge([self.state, desired.losses(self.losses.values())])
        updates = difference(await self.link.read(), wanted)
        await self.link.write(updates)
        return updates

    async def _connected(self) -> None:
        if not self.ready.is_set():
            self._found(self.name, await self.link.read())
        await self.reconcile()
        self.link.wiped = False
        self.ready.set()


class AlgorithmPlane:
    """An algorithm's jobs on its plane.

    A job's place in the registers depends on its number, and nothing but a push of the program clears
    registers. So each number is used once, until no job runs and the switches can be cleared.
    """

    def __init__(
        self,
        plane: Plane,
        tls: TlsFiles | None,
        ended: Callable[[AlgorithmPlane], None],
    ) -> None:
        """Prepare the switches. `ended` gets this plane when a job has ended, and lets it `clear`.

        UserError names a mistake in the algorithm's folder.
        """
        from railweave.sdk.plane import Program  # noqa: PLC0415 - railweave.sdk builds on the controller's states

        self.plane = plane
        self.program = Program(plane)
        self.switches = [
            AlgorithmSwitch(plane, switch, self.program, self._found, tls)
            for switch in plane.switches
            if switch.p4runtime
        ]
        self._ended = ended
        self._running: set[int] = set()
        self._used = 0  # jobs with smaller numbers have used their registers
        self._unclaimed = False  # whether jobs of an earlier controller may still resume
        self._lock = asyncio.Lock()
        self._use(0)

    async def begin(self, nics: Mapping[int, Nic], number: int | None = None) -> int:
        """Begin a job of these ranks, or one that an earlier controller has begun. Return its number.

        Refused names the obstacle.
        """
        async with self._lock:
            self._check(nics)
            await self._clear()
            number = self._used if number is None else number
            if number in self._running:
                raise Refused(f"job {number} of the algorithm runs already", "its own number", "start again")
            try:
                self._use(max(self._used, number + 1))
            except UserError as error:
                raise Refused(
                    f"the algorithm has had {self._used} jobs since its switches were cleared: {error}",
                    "room for one more",
                    "end the other jobs on this plane",
                ) from error
            await self._reconcile()
            self._running.add(number)
            return number

    def end(self, number: int) -> None:
        """End a job."""
        self._running.discard(number)
        self._ended(self)

    def close_claims(self) -> None:
        """Let no more jobs of earlier controllers resume."""
        self._unclaimed = False
        self._ended(self)

    async def clear(self) -> None:
        """Clear the switches, if no job runs or may resume."""
        async with self._lock:
            await self._clear()

    async def _clear(self) -> None:
        if self._running or self._unclaimed or not self._used:
            return
        try:
            await asyncio.gather(*(switch.clear() for switch in self.switches))
            self._use(0)
            await self._reconcile()
        except SwitchUnavailable as unavailable:  # the next job gets another number, or clears them
            LOG.warning("put off: %s", unavailable)

    async def _reconcile(self) -> None:
        await asyncio.gather(*(switch.reconcile() for switch in self.switches))

    def _use(self, jobs: int) -> None:
        states = self.program.wanted(jobs)
        self._used = jobs
        for switch in self.switches:
            switch.state = states[switch.name]

    def _found(self, switch: str, state: SwitchState) -> None:
        """Keep the entries of an earlier controller's jobs, until their ranks resume or `clear`."""
        with suppress(UserError):  # there is no room for more jobs
            while self.program.wanted(self._used + 1)[switch].entries <= state.entries:
                self._use(self._used + 1)
                self._unclaimed = True

    def _check(self, nics: Mapping[int, Nic]) -> None:
        by_rank = [nics[rank] for rank in range(len(nics))]
        if by_rank != list(self.plane.nics):
            raise Refused(
                f"rail on plane {self.plane.name!r}: ranks on {', '.join(nic.host for nic in by_rank)}",
                f"rank 0 on {self.plane.nics[0].host}, and a rank on every NIC of the plane, in this order",
                "start the ranks in the order of the topology",
            )
        for switch in self.switches:
            if not switch.link.up:
                raise SwitchUnavailable(switch.link.problem)
