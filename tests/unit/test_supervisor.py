# SPDX-License-Identifier: Apache-2.0
"""The supervisor waits for the reports of a lab's ranks, but only as long as they can come."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

import pytest

from railweave.experiments.hosts import JobOptions
from railweave.experiments.supervisor import Supervisor, alongside, cancel, messages
from railweave.topologies.errors import LabError, WorkerFailed
from railweave.topologies.lab.lab import Lab
from railweave.topologies.lab.options import LabOptions
from railweave.topologies.lab.processes import Child
from railweave.topologies.model import Topology
from railweave.topologies.planes import planes

LONG_S = 60.0


class Processes(Lab):
    """A lab without a network. Its workers are processes of this machine."""

    def __init__(self, folder: Path, hosts: int) -> None:
        topology = planes(2, ("tcp",))
        super().__init__(Topology("some", topology.hosts[:hosts], topology.planes), LabOptions(folder))

    async def __aenter__(self) -> Processes:
        return self

    async def start_worker(
        self,
        host: str,
        name: str,
        command: Sequence[str],
        environment: Mapping[str, str],
        *,
        merged: bool = False,
    ) -> Child:
        worker = await Child.start(name, command, self.out / f"{host}.log", self._events)
        self._workers.append(worker)
        self._unfinished.add(worker)
        return worker


class Started(Supervisor):
    """A supervisor, and the numbers that the rank has reported."""

    def __init__(self, lab: Lab) -> None:
        super().__init__(lab)
        self.numbers: list[int] = []
        self.children: list[Child] = []

    async def begin(self, script: str) -> None:
        job = JobOptions("job", [sys.executable, "-c", script])
        self.children = await self.start(job, messages(lambda _, m: self.numbers.append(m["number"])))


@contextlib.asynccontextmanager
async def supervised(
    script: str, folder: Path, silence_s: float | None = None, hosts: int = 1
) -> AsyncIterator[tuple[Started, asyncio.Task[None]]]:
    async with Processes(folder, hosts) as lab:
        supervisor = Started(lab)
        await supervisor.begin(script)
        reading = asyncio.create_task(supervisor.read(silence_s))
        yield supervisor, reading
        await cancel(reading)


PRINT = """print('chatter'); print('{"event": "tick", "rank": 0, "number": 7}', flush=True)"""


WAIT = "import signal; signal.pause()"
STOP = f"""import signal; signal.signal(signal.SIGUSR1, lambda *_: exit()); {PRINT}; signal.pause()"""


async def test_a_rank_that_dies_ends_the_wait_at_once_with_its_error(tmp_path: Path) -> None:
    async with supervised("raise SystemExit('no such interface')", tmp_path) as (ranks, _):
        async with asyncio.timeout(LONG_S / 2):
            with pytest.raises(LabError, match=r"h1 \(rank 0\) ended with status 1: no such interface"):
                await ranks.until(lambda: bool(ranks.numbers), LONG_S)


async def test_ranks_that_end_alike_are_named_together(tmp_path: Path) -> None:
    words = r"h\d \(rank \d\) ended with status 1: no such file .*; so did h\d \(rank \d\)"
    async with supervised("raise SystemExit('no such file')", tmp_path, hosts=2) as (_, reading):
        with pytest.raises(WorkerFailed, match=words):
            await reading


async def test_what_came_before_the_end_counts(tmp_path: Path) -> None:
    async with supervised(PRINT, tmp_path) as (ranks, reading):
        await reading
        assert await ranks.until(lambda: ranks.numbers == [7], LONG_S)
        with pytest.raises(LabError, match="all ranks have ended"):
            await ranks.until(lambda: len(ranks.numbers) > 1, LONG_S)


async def test_a_deadline_passes_while_the_rank_lives(tmp_path: Path) -> None:
    async with supervised(WAIT, tmp_path) as (ranks, _):
        assert not await ranks.until(lambda: bool(ranks.numbers), 0.01)


async def test_a_rank_of_which_nothing_is_heard_ends_the_reading(tmp_path: Path) -> None:
    async with supervised(WAIT, tmp_path, silence_s=0.01) as (_, reading):
        with pytest.raises(TimeoutError):
            await reading


async def test_endless_ranks_end_when_they_are_told(tmp_path: Path) -> None:
    async with supervised(STOP, tmp_path) as (ranks, reading):
        await ranks.begun(lambda: ranks.numbers == [7])
        await ranks.stop(ranks.children[0], deadline_s=LONG_S)
        await reading


async def test_a_rank_that_does_not_end_is_told_of(tmp_path: Path) -> None:
    deaf = STOP.replace("exit()", "None").replace("signal.pause()", "[signal.pause() for _ in range(9)]")
    async with supervised(deaf, tmp_path) as (ranks, _):
        await ranks.begun(lambda: ranks.numbers == [7])
        with pytest.raises(LabError, match="the ranks have not ended"):
            await ranks.stop(ranks.children[0], deadline_s=0.01)


async def test_what_runs_beside_is_undone_at_the_end_and_its_error_ends_all() -> None:
    undone = []

    async def lasting(name: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            undone.append(name)

    async def failing() -> None:
        raise LabError("beside")

    async def result() -> int:
        await asyncio.sleep(0)
        return 7

    assert await alongside(result(), lasting("first")) == 7
    with pytest.raises(LabError, match="beside"):
        await alongside(lasting("main"), lasting("second"), failing())
    assert sorted(undone) == ["first", "main", "second"]
