# SPDX-License-Identifier: Apache-2.0
"""Makes faults happen in a running lab, quickly and with their instants, and undoes them."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING

from railweave.topologies.lab.faults import Deed, Fault, Step
from railweave.topologies.lab.namespaces import Primed

if TYPE_CHECKING:
    from railweave.topologies.lab.lab import Lab


@dataclass(frozen=True)
class Span:
    """The instant at which something came about lies between these two, of CLOCK_MONOTONIC in s."""

    begin: float
    end: float


class Injection:
    """`async with Injection(lab, fault) as injection:` has a fault ready to strike; on leaving it is undone.

    The tools that will do it have been started by then, and only wait for their orders, so that between
    `strike` and the effect lies no start of a process: tc, ip and nft take a few milliseconds to start, and
    more on a busy machine.
    """

    def __init__(self, lab: Lab, fault: Fault) -> None:
        """Nothing happens before `async with`."""
        self._lab = lab
        self._fault = fault
        self._struck = False
        self._flaps: asyncio.Task[None] | None = None
        self._ready: dict[Step, Primed] = {}

    async def __aenter__(self) -> Injection:
        """Make ready."""
        self._lab.do(self._fault.before)
        self._prime(self._fault.strike)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Repair, if that has not been done."""
        if self._struck:
            await self.repair()
        for primed in self._ready.values():
            primed.dismiss()
        self._lab.do(self._fault.after)

    async def strike(self) -> Span:
        """Let the fault come about; of one that flaps, for the first time."""
        self._struck = True
        begin = time.monotonic()
        match self._fault.deed:
            case (Deed.KILL, switch):
                await self._lab.kill(switch)
            case (Deed.FREEZE, switch):
                self._lab.freeze(switch)
        self._fire(self._fault.strike)
        end = time.monotonic()
        if self._fault.flap_s:
            self._flaps = asyncio.create_task(self._flap())
        else:
            self._prime(self._fault.repair)
        return Span(begin, end)

    async def repair(self) -> Span:
        """Make it good; the end of the span is the instant from which all is as before."""
        if self._flaps is not None:
            self._flaps.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._flaps
            self._flaps = None
        begin = time.monotonic()
        match self._fault.deed:
            case (Deed.KILL, switch):
                await self._lab.revive(switch)
            case (Deed.FREEZE, switch):
                self._lab.thaw(switch)
        self._fire(self._fault.repair)
        end = time.monotonic()
        self._struck = False
        self._prime(self._fault.strike)
        return Span(begin, end)

    async def _flap(self) -> None:
        """Up and down, by a clock that does not drift with what the steps take."""
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            for steps in (self._fault.repair, self._fault.strike):
                self._prime(steps)
                due += self._fault.flap_s
                await asyncio.sleep(due - loop.time())
                self._fire(steps)

    def _prime(self, steps: Sequence[Step]) -> None:
        for step in steps:
            if step not in self._ready:
                self._ready[step] = self._lab.prime(step)

    def _fire(self, steps: Sequence[Step]) -> None:
        """Give all tools their orders, then wait for all."""
        self._prime(steps)
        fired = [self._ready.pop(step) for step in steps]
        for primed in fired:
            primed.fire()
        for primed in fired:
            primed.wait()
