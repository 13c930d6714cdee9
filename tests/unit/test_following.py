# SPDX-License-Identifier: Apache-2.0
"""What the ranks of a lab report is waited for, and no longer than it can come."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from railweave.experiments.following import Following, cancel
from railweave.topologies.errors import LabError
from railweave.topologies.lab.lab import Lab
from railweave.topologies.lab.options import LabOptions
from railweave.topologies.lab.processes import Child, Line
from railweave.topologies.planes import planes

LONG_S = 60.0


class OneProcess(Lab):
    """A lab without a network, whose one worker is a process of this machine."""

    def __init__(self, script: str, folder: Path) -> None:
        super().__init__(planes(2, ("tcp",)), LabOptions(folder))
        self._script = script
        self._folder = folder

    async def __aenter__(self) -> OneProcess:
        return self

    async def events(self) -> AsyncIterator[Line]:
        log = self._folder / "worker.log"
        worker = await Child.start("worker", [sys.executable, "-c", self._script], log, self._events)
        self._workers.append(worker)
        self._unfinished.add(worker)
        async for line in super().events():
            yield line


class Numbers(Following[list[int]]):
    def take(self, log: list[int], message: dict[str, Any]) -> None:
        log.append(message["number"])


@contextlib.asynccontextmanager
async def following(script: str, folder: Path) -> AsyncIterator[tuple[Numbers, asyncio.Task[None]]]:
    async with OneProcess(script, folder) as lab:
        numbers = Numbers(lab, [[]])
        reading = asyncio.create_task(numbers.read())
        yield numbers, reading
        await cancel(reading)


PRINT = """print('chatter'); print('{"event": "tick", "rank": 0, "number": 7}', flush=True)"""


async def test_a_rank_that_dies_ends_the_wait_at_once_with_its_error(tmp_path: Path) -> None:
    async with following("raise SystemExit('no such interface')", tmp_path) as (numbers, _):
        async with asyncio.timeout(LONG_S / 2):
            with pytest.raises(LabError, match="worker ended with status 1: no such interface"):
                await numbers.until(lambda logs: bool(logs[0]), LONG_S)


async def test_what_came_before_the_end_counts(tmp_path: Path) -> None:
    async with following(PRINT, tmp_path) as (numbers, reading):
        await reading
        assert await numbers.until(lambda logs: logs[0] == [7], LONG_S)
        with pytest.raises(LabError, match="all ranks have ended"):
            await numbers.until(lambda logs: len(logs[0]) > 1, LONG_S)


async def test_a_deadline_passes_while_the_rank_lives(tmp_path: Path) -> None:
    async with following("import signal; signal.pause()", tmp_path) as (numbers, _):
        assert not await numbers.until(lambda logs: bool(logs[0]), 0.01)
