# SPDX-License-Identifier: Apache-2.0
"""A lab for ordinary Python programs: notebooks, pytest and your own experiments.

    def worker(comm):  # runs on every host, and returns a value
        ...

    if __name__ == "__main__":  # every host imports this file; a notebook needs no such line
        with railweave.lab(hosts=4, rails="ina,tcp") as lab:
            job = lab.run(worker)
            with lab.fault("host link down h1 ina"):
                ...
            print(job.wait().values, lab.counters().interfaces["tcp"]["h1"].bytes_sent)

The lab runs in an event loop in a separate thread. Use a lab from one thread only.
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

from railweave.experiments.fault_script import fault_of
from railweave.experiments.hosts import JobOptions, planes_of, require_program
from railweave.experiments.messages import read
from railweave.experiments.program.collect import Collected, Interfaces, interfaces_of, run_job
from railweave.experiments.program.worker import command_of
from railweave.experiments.supervisor import cancel
from railweave.hosts.options import check_shares
from railweave.topologies.errors import LabError
from railweave.topologies.lab.injection import Injection
from railweave.topologies.lab.lab import Lab
from railweave.topologies.lab.options import LabOptions
from railweave.topologies.model import Topology

T = TypeVar("T")
Worker = Callable[..., Any] | Sequence[str]
CONTROLLERS = ("RAILWEAVE_CONTROLLER", "RAILWEAVE_CLUSTER")  # every rank has one of these variables, and RANK


def refuse_in_rank(environment: Mapping[str, str] = os.environ) -> None:
    """Raise LabError in a rank of a job. The ranks of its lab would also make labs, without end."""
    if environment.get("RANK") and any(environment.get(name) for name in CONTROLLERS):
        raise LabError(
            f"railweave.lab was called in rank {environment['RANK']} of a job",
            "calls outside of jobs",
            'call it below `if __name__ == "__main__":` in a file whose functions run on the hosts',
        )


@dataclass(frozen=True)
class Counters:
    """Hold the counts of the kernel and of the switches since the lab was made.

    Attributes:
        interfaces: `InterfaceCounters` of each host, by plane and host.
        switches: Packets by decision of the P4 program, by plane.
        links: Bytes that a plane's links have carried in both directions, by plane. Unshaped links do not
            count.
    """

    interfaces: Interfaces
    switches: Mapping[str, Mapping[str, int]]
    links: Mapping[str, int]


@dataclass(frozen=True)
class JobResult:
    """Hold the results of a job that has ended on all hosts.

    Attributes:
        values: Value that the worker returned, by rank; None for commands.
        output: Lines of stdout and stderr, by rank.
        collected: Slices and byte counts of all ranks.
    """

    values: Sequence[Any]
    output: Sequence[Sequence[str]]
    collected: Collected


class Job:
    """A handle of a worker that runs on all hosts."""

    def __init__(self, future: Future[JobResult]) -> None:
        """Make a handle; only `Testbed.run` does this."""
        self._future = future

    def wait(self, timeout_s: float | None = None) -> JobResult:
        """Wait until all ranks have ended, and return their results.

        Args:
            timeout_s: Seconds to wait; None: for ever.

        Returns:
            The results of all ranks.

        Raises:
            WorkerFailed: A rank has failed. The message names the first one.
            LabError: The network has failed.
            TimeoutError: The job has not ended within `timeout_s`. It goes on.
        """
        return self._future.result(timeout_s)

    def done(self) -> bool:
        """Return whether the job has ended."""
        return self._future.done()


class Outage:
    """A handle of a fault that lasts until `repair`, or until the end of its `with` block."""

    def __init__(self, bed: Testbed, injection: Injection) -> None:
        """Make a handle; only `Testbed.fault` does this."""
        self._bed = bed
        self._injection: Injection | None = injection

    def repair(self) -> None:
        """End the fault. It is safe to call it again."""
        if self._injection is not None:
            injection, self._injection = self._injection, None
            self._bed.call(injection.__aexit__(None, None, None))

    def __enter__(self) -> Outage:
        """Return the fault, which has begun already."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the fault."""
        self.repair()


class Testbed:
    """Run jobs and inject faults in a network of this machine.

    `railweave.lab` returns a Testbed. Its network exists from the begin to the end of its `with` block.

    Attributes:
        topology: The hosts, planes and switches of the network.
    """

    def __init__(self, topology: Topology, options: LabOptions) -> None:
        """Prepare a lab. The `with` block makes its network."""
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
        """Make the network. Raises LabError, with the cause, if this machine cannot."""
        self._thread.start()
        making = asyncio.run_coroutine_threadsafe(self._lab.__aenter__(), self._loop)
        try:
            making.result()
        except BaseException:  # also after Ctrl-C, remove the parts made so far
            making.cancel()
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Repair all faults, end the job and remove the network."""
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
        """Start a worker on every host, and return a handle at once. One job runs at a time.

        Args:
            worker: Function `worker(comm, *arguments)` at the top level of a file, or a command as a list of
                words. Every host's process imports the function's file.
            *arguments: Arguments of the function or command. Arguments and returned values must be JSON
                values.
            shares: Share of each rail, as for `railweave.init`.
            rails: Names of the lab's planes to use as rails; None: all planes.
            environment: Further environment variables of the worker.

        Returns:
            A handle to wait for.

        Raises:
            LabError: Another job still runs.
            InvalidOption: `rails` or `shares` has a name that is no plane of the lab. The message lists the
                planes.
            OptionError: The command's program does not exist.
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
        """Inject a fault, and return a handle for its repair.

        Args:
            words: The fault and its place, such as `host link down h1 ina`. `railweave run --help` lists all
                faults.

        Returns:
            A handle. Call its `repair`, or use it in a `with` block.

        Raises:
            OptionError: The fault or its place is unknown.
        """
        outage = Outage(self, self.call(self._inject(words)))
        self._outages.append(outage)
        return outage

    def counters(self) -> Counters:
        """Read the counters of the kernel and of the switches."""
        links = {plane.name: self._lab.bytes_carried(plane.name) for plane in self.topology.planes}
        return Counters(interfaces_of(self._lab), self.call(self._lab.switch_counters()), links)

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the lab's event loop, and return its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _inject(self, words: str) -> Injection:
        injection = Injection(self._lab, fault_of(words, self.topology))
        await injection.__aenter__()
        await injection.inject()
        return injection

    async def _run(self, options: JobOptions) -> JobResult:
        self._task = asyncio.current_task()
        values: list[Any] = [None] * len(self.topology.hosts)
        output: list[list[str]] = [[] for _ in self.topology.hosts]

        def on_line(rank: int, text: str) -> None:
            message = read(text)
            if message is not None and message["event"] == "returned":
                values[rank] = message["value"]
            else:
                output[rank].append(text)

        collected = await run_job(self._lab, options, on_line, disturbed=lambda: bool(self._outages))
        return JobResult(values, output, collected)

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
