# SPDX-License-Identifier: Apache-2.0
"""Injects faults into a running lab, quickly and with their instants, and repairs them."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING

from railweave.topologies.lab.faults import Fault, ProcessFault, Step
from railweave.topologies.lab.namespaces import Primed

if TYPE_CHECKING:
    from railweave.topologies.lab.lab import Lab


@dataclass(frozen=True)
class Span:
    """Bounds of the instant at which a change took effect, of CLOCK_MONOTONIC in s."""

    begin: float
    end: float


class Injection:
    """`async with Injection(lab, fault) as injection:` prepares a fault; on leaving it is repaired.

    The tools for it are started beforehand, and wait for their commands, so that no process has to start
    between `inject` and the effect: tc, ip and nft take a few milliseconds to start, and more on a busy
    machine.
    """

    def __init__(self, lab: Lab, fault: Fault) -> None:
        """Nothing happens before `async with`."""
        self._lab = lab
        self._fault = fault
        self._injected = False
        self._flaps: asyncio.Task[None] | None = None
        self._ready: dict[Step, Primed] = {}

    async def __aenter__(self) -> Injection:
        """Prepare the fault."""
        self._lab.do(self._fault.before)
        self._prime(self._fault.inject)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Repair the fault, unless that has been done."""
        if self._injected:
            await self.repair()
        for primed in self._ready.values():
            primed.dismiss()
        self._lab.do(self._fault.after)

    async def inject(self) -> Span:
        """Inject the fault; one that flaps, for the first time."""
        self._injected = True
        begin = time.monotonic()
        match self._fault.process:
            case (ProcessFault.KILL, switch):
                await self._lab.kill(switch)
            case (ProcessFault.FREEZE, switch):
                self._lab.freeze(switch)
        self._fire(self._fault.inject)
        end = time.monotonic()
        if self._fault.flap_s:
            self._flaps = asyncio.create_task(self._flap())
        else:
            self._prime(self._fault.repair)
        return Span(begin, end)

    async def repair(self) -> Span:
        """Repair the fault; the repair is complete at the end of the span."""
        if self._flaps is not None:
            self._flaps.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._flaps
            self._flaps = None
        begin = time.monotonic()
        match self._fault.process:
            case (ProcessFault.KILL, switch):
                await self._lab.revive(switch)
            case (ProcessFault.FREEZE, switch):
                self._lab.thaw(switch)
        self._fire(self._fault.repair)
        end = time.monotonic()
        self._injected = False
        self._prime(self._fault.inject)
        return Span(begin, end)

    async def _flap(self) -> None:
        """Repair and inject in turn, at instants that do not drift with the time that the steps take."""
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            for steps in (self._fault.repair, self._fault.inject):
                self._prime(steps)
                due += self._fault.flap_s
                await asyncio.sleep(due - loop.time())
                self._fire(steps)

    def _prime(self, steps: Sequence[Step]) -> None:
        for step in steps:
            if step not in self._ready:
                self._ready[step] = self._lab.prime(step)

    def _fire(self, steps: Sequence[Step]) -> None:
        """Send all tools their commands, then wait for all."""
        self._prime(steps)
        fired = [self._ready.pop(step) for step in steps]
        for primed in fired:
            primed.fire()
        for primed in fired:
            primed.wait()
