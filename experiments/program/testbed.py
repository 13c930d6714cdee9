# SPDX-License-Identifier: Apache-2.0
"""A lab from ordinary Python, for notebooks, pytest and experiments of one's own.

    if __name__ == "__main__":  # not needed in notebooks: every host imports the file of `worker`
        with railweave.lab(hosts=4, rails="ina,tcp") as lab:
            job = lab.run(worker)                   # def worker(comm): ... returns a value, on every host
            with lab.fault("host link down h1 ina"):
                ...
            print(job.wait().values, lab.counters().interfaces["tcp"]["h1"].bytes_sent)

The lab lives in an event loop in a thread of its own; nothing here is to be called from several threads.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, TypeVar

from railweave.experiments.hosts import JobOptions, explained, planes_of, require_program
from railweave.experiments.messages import read
from railweave.experiments.program.collect import Collected, Interfaces, collect
from railweave.experiments.program.fault_script import fault_of
from railweave.experiments.program.worker import command_of
from railweave.experiments.supervisor import Supervisor, cancel
from railweave.hosts.options import check_shares
from railweave.topologies.errors import LabError, WorkerFailed
from railweave.topologies.lab.injection import Injection
from railweave.topologies.lab.lab import Lab
from railweave.topologies.lab.options import LabOptions
from railweave.topologies.model import Topology

T = TypeVar("T")
Worker = Callable[..., Any] | Sequence[str]
CONTROLLERS = ("RAILWEAVE_CONTROLLER", "RAILWEAVE_CLUSTER")  # every rank has one of them, and a number


def refuse_in_rank(environment: Mapping[str, str] = os.environ) -> None:
    """Raise LabError in a rank of a job: its lab would have ranks that make labs, and so on without end."""
    if environment.get("RANK") and any(environment.get(name) for name in CONTROLLERS):
        raise LabError(
            f"railweave.lab was called in rank {environment['RANK']} of a job",
            "calls outside of jobs",
            'call it below `if __name__ == "__main__":` in a file whose functions run on the hosts',
        )


@dataclass(frozen=True)
class Counters:
    """What kernel and switches have counted since the lab was made."""

    interfaces: Interfaces  # by plane and host
    switches: Mapping[str, Mapping[str, int]]  # packets by decision of the P4 program, by plane
    links: Mapping[str, int]  # bytes that the links of a plane have carried, both ways; not unshaped ones


@dataclass(frozen=True)
class JobResult:
    """A job that has ended on all hosts."""

    values: Sequence[Any]  # what the worker returned, by rank; None for commands
    output: Sequence[Sequence[str]]  # lines of stdout and stderr, by rank
    collected: Collected


class Job:
    """A worker that runs on all hosts."""

    def __init__(self, future: Future[JobResult]) -> None:
        """Made by `Testbed.run`."""
        self._future = future

    def wait(self, timeout_s: float | None = None) -> JobResult:
        """Return the result when all ranks have ended.

        Raises WorkerFailed, which names the first rank that failed; LabError when the network has, and
        TimeoutError.
        """
        return self._future.result(timeout_s)

    def done(self) -> bool:
        """Whether it has ended."""
        return self._future.done()


class Outage:
    """A fault that lasts until `repair`, or until the end of its `with` block."""

    def __init__(self, bed: Testbed, injection: Injection) -> None:
        """Made by `Testbed.fault`."""
        self._bed = bed
        self._injection: Injection | None = injection

    def repair(self) -> None:
        """End the fault; nothing if that has been done."""
        if self._injection is not None:
            injection, self._injection = self._injection, None
            self._bed.call(injection.__aexit__(None, None, None))

    def __enter__(self) -> Outage:
        """The fault lasts already."""
        return self

    def __exit__(self, *_: object) -> None:
        """Repair it."""
        self.repair()


class Testbed:
    """A running lab; made by `railweave.lab`, and removed at the end of its `with` block."""

    def __init__(self, topology: Topology, options: LabOptions) -> None:
        """Nothing happens before `with`."""
        self.topology = topology
        self._options = options
        self._lab = Lab(topology, replace(options, flows=True))
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="railweave lab", daemon=True)
        self._jobs = 0
        self._job: Job | None = None
        self._task: asyncio.Task[JobResult] | None = None
        self._outages: list[Outage] = []

    def __enter__(self) -> Testbed:
        """Make the network; LabError says why it cannot be."""
        self._thread.start()
        making = asyncio.run_coroutine_threadsafe(self._lab.__aenter__(), self._loop)
        try:
            making.result()
        except BaseException:  # Ctrl-C too: what has been made is removed
            making.cancel()
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Repair what is not repaired, end what still runs, and remove the network."""
        try:
            for outage in self._outages:
                outage.repair()
        finally:
            self._end()

    def run(
        self,
        worker: Worker,
        *arguments: Any,
        shares: Mapping[str, float] | None = None,
        rails: str | Sequence[str] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Job:
        """Start a worker on every host: a function `worker(comm, *arguments)`, or a command.

        The function must stand in a file, at its top level; its module is imported in every host's process,
        arguments and the value that it returns travel as JSON. `rails` are names of the lab's planes, default
        all of them; `shares` are as for `railweave.init`. One job runs at a time. Raises InvalidOption, which
        lists the planes, if a name in `rails` or `shares` is none of them, and OptionError if there is no
        such command.
        """
        if self._job is not None and not self._job.done():
            raise LabError("a job is running", "one job at a time", "wait for it first")
        planes = [plane.name for plane in planes_of(self.topology, rails)]
        check_shares(shares or {}, planes)
        command = command_of(worker, *arguments) if callable(worker) else [*worker, *map(str, arguments)]
        require_program(command)
        self._jobs += 1
        name = f"job{self._jobs}"
        options = JobOptions(
            name,
            command,
            shares=shares,
            planes=planes,
            environment=environment or {},
            report_of=lambda rank: self._options.out / f"{name}-rank-{rank}.jsonl",
            merged=True,
        )
        self._job = Job(asyncio.run_coroutine_threadsafe(self._run(options), self._loop))
        return self._job

    def fault(self, words: str) -> Outage:
        """Inject a fault: `host link down h1 ina`, as in `railweave run --fault`. OptionError if unknown."""
        outage = Outage(self, self.call(self._inject(words)))
        self._outages.append(outage)
        return outage

    def counters(self) -> Counters:
        """Return what kernel and switches have counted so far."""
        links = {plane.name: self._lab.bytes_carried(plane.name) for plane in self.topology.planes}
        return Counters(self._interfaces(), self.call(self._lab.switch_counters()), links)

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the lab's loop and return its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _inject(self, words: str) -> Injection:
        injection = Injection(self._lab, fault_of(words, self.topology))
        await injection.__aenter__()
        await injection.inject()
        return injection

    async def _run(self, options: JobOptions) -> JobResult:
        self._task = asyncio.current_task()
        size = len(self.topology.hosts)
        reports = {rank: options.report_of(rank) for rank in range(size)} if options.report_of else {}
        for path in reports.values():
            path.unlink(missing_ok=True)
        before = self._interfaces()
        values: list[Any] = [None] * size
        output: list[list[str]] = [[] for _ in range(size)]

        def on_line(rank: int, text: str) -> None:
            message = read(text)
            if message is not None and message["event"] == "returned":
                values[rank] = message["value"]
            else:
                output[rank].append(text)

        supervisor = Supervisor(self._lab)
        await supervisor.start(options, on_line)
        try:
            await supervisor.read()
        except WorkerFailed as error:
            raise explained(error, options.command) from error
        finally:
            await self._lab.stop_workers()  # of a job that has failed
        during = _difference(self._interfaces(), before)
        disturbed = bool(self._outages)
        return JobResult(values, output, collect(reports, self.topology.planes, during, disturbed=disturbed))

    def _interfaces(self) -> Interfaces:
        return {plane.name: self._lab.interface_counters(plane.name) for plane in self.topology.planes}

    async def _remove(self) -> None:
        if self._task is not None:
            await cancel(self._task)
        await self._lab.__aexit__(None, None, None)

    def _end(self) -> None:
        try:
            self.call(self._remove())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()


def _difference(after: Interfaces, before: Interfaces) -> Interfaces:
    return {
        plane: {host: counts - before[plane][host] for host, counts in hosts.items()}
        for plane, hosts in after.items()
    }
