# SPDX-License-Identifier: Apache-2.0
"""Inject faults into a running lab, repair them, and measure the instants of both."""

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
    """Bounds of the instant at which a change took effect, in seconds of CLOCK_MONOTONIC."""

    begin: float
    end: float


class Injection:
    """`async with Injection(lab, fault) as injection:` prepares a fault, and repairs it on leaving.

    The tools are started beforehand and wait for their commands. So no process has to start between `inject`
    and the effect. tc, ip and nft take a few milliseconds to start, and more on a busy machine.
    """

    def __init__(self, lab: Lab, fault: Fault) -> None:
        """Keep the fault. Nothing happens before `async with`."""
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
        """Repair the fault if it is still present."""
        if self._injected:
            await self.repair()
        for primed in self._ready.values():
            primed.dismiss()
        self._lab.do(self._fault.after)

    async def inject(self) -> Span:
        """Inject the fault. A flapping fault is injected for the first time."""
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
        """Repair the fault. The repair is complete at the end of the span."""
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
        """Repair and inject alternately. The instants do not drift with the duration of the steps."""
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
        """Send the commands to all tools, then wait for all."""
        self._prime(steps)
        fired = [self._ready.pop(step) for step in steps]
        for primed in fired:
            primed.fire()
        for primed in fired:
            primed.wait()
