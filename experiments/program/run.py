# SPDX-License-Identifier: Apache-2.0
"""Runs a command in every host of a lab, with faults at given times, and collects what the ranks report."""

from __future__ import annotations

import asyncio
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from railweave.experiments.following import cancel
from railweave.experiments.hosts import JobOptions, start_job
from railweave.experiments.live.page import live_page
from railweave.experiments.program.collect import Collected, collect
from railweave.experiments.program.fault_script import Entry, play
from railweave.topologies.errors import LabError
from railweave.topologies.lab.lab import Lab
from railweave.topologies.lab.options import LabOptions
from railweave.topologies.lab.processes import Child
from railweave.topologies.model import Topology

LOOK_S = 0.05


@dataclass(frozen=True)
class ProgramOptions:
    """One run of a program."""

    topology: Topology
    command: Sequence[str]
    out: Path
    shares: Mapping[str, float] | None = None
    faults: Sequence[Entry] = ()
    join_s: float = 60.0  # until all ranks have called railweave.init; 0: they need not
    switch_target: str = "embedded"
    loss: Mapping[str, float] = field(default_factory=dict)  # by plane
    impair: str = ""
    seed: int = 1
    shell: bool = False  # open Mininet's prompt; leaving it ends the run
    live: int | None = None  # port of the live page, 0 for a free one; None: no page
    title: str = ""  # what the job is called; none: its command

    def report_of(self, rank: int) -> Path:
        """Return the file of a rank's report."""
        return self.out / f"rank-{rank}.jsonl"


@dataclass(frozen=True)
class ProgramResult:
    """What the ranks and the network counted."""

    options: ProgramOptions
    collected: Collected
    switch_counters: Mapping[str, Mapping[str, int]]
    events: Sequence[tuple[float, str]]  # faults and repairs, with seconds of CLOCK_MONOTONIC

    @property
    def ok(self) -> bool:
        """Whether agents and interfaces agree on the bytes sent."""
        return all(rail.bytes_agree for rail in self.collected.rails)


async def run(
    options: ProgramOptions,
    on_phase: Callable[[str], None],
    on_line: Callable[[int, str], None],
    on_news: Callable[[str], None] | None = None,
) -> ProgramResult:
    """Run the command in every host to its end; `on_line` gets each line of output with its rank.

    `on_news` is told where the live page is, and of faults and repairs; without it, `on_phase` is.
    Raises WorkerFailed when a rank has ended otherwise than with status 0, and LabError when a part of the
    network has, or when not all ranks have called railweave.init in time.
    """
    topology, say = options.topology, on_news or on_phase
    events: list[tuple[float, str]] = []

    def on_event(when: str, text: str) -> None:
        events.append((time.monotonic(), text))
        page.happened(text)
        say(f"{when}: {text}")

    on_phase(f"making a network of {len(topology.hosts)} hosts and {len(topology.planes)} planes")
    lab_options = LabOptions(
        options.out, options.switch_target, options.loss, impair=options.impair, seed=options.seed
    )
    reports = {rank: options.report_of(rank) for rank in range(len(topology.hosts))}
    title = options.title or shlex.join(options.command)
    async with live_page(options.live, topology, title, say) as page, Lab(topology, lab_options) as lab:
        for report in reports.values():
            report.unlink(missing_ok=True)
        ranks = {}
        async with page.watch(lab, reports, options.out, lambda text: on_event("button", text)):
            if options.command:
                on_phase(f"running {title}")
                ranks = await start_job(lab, _job(options, page.environment))
            await _follow(lab, options, ranks, lambda at, text: on_event(f"{at:.2f} s", text), on_line)
        interfaces = {plane.name: lab.interface_counters(plane.name) for plane in topology.planes}
        switches = await lab.switch_counters()
    return ProgramResult(options, collect(reports, topology.planes, interfaces), switches, events)


def _job(options: ProgramOptions, environment: Mapping[str, str]) -> JobOptions:
    return JobOptions(
        "run",
        options.command,
        options.shares,
        environment=environment,
        merged=True,
        report_of=options.report_of,
    )


async def _follow(
    lab: Lab,
    options: ProgramOptions,
    ranks: Mapping[Child, int],
    on_event: Callable[[float, str], None],
    on_line: Callable[[int, str], None],
) -> None:
    """Return when the ranks have ended, or the prompt has been left; faults are repaired then."""
    ends = asyncio.create_task(lab.prompt() if options.shell else _read(lab, ranks, on_line))
    beside = [asyncio.create_task(_faults(lab, options, ranks, on_event))]
    if options.shell:
        beside.append(asyncio.create_task(_read(lab, ranks, on_line)))
    try:
        running = {ends, *beside}
        while not ends.done():
            done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                await task  # raises its error
    finally:
        await cancel(ends, *beside)


async def _read(lab: Lab, ranks: Mapping[Child, int], on_line: Callable[[int, str], None]) -> None:
    async for line in lab.events():
        on_line(ranks[line.child], line.text)


async def _faults(
    lab: Lab, options: ProgramOptions, ranks: Mapping[Child, int], on_event: Callable[[float, str], None]
) -> None:
    """Wait until the ranks have met, then play the script."""
    deadline = time.monotonic() + options.join_s
    while options.join_s and (missing := [r for r in ranks.values() if not options.report_of(r).exists()]):
        if time.monotonic() > deadline:
            names = ", ".join(f"rank {rank} ({lab.topology.hosts[rank]})" for rank in missing)
            raise LabError(
                f"not called railweave.init within {options.join_s:g} s: {names}; --join gives more time, "
                "--join 0 is for programs that do not call it"
            )
        await asyncio.sleep(LOOK_S)
    if options.faults:
        await play(lab, options.faults, on_event)
