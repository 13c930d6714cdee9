# SPDX-License-Identifier: Apache-2.0
"""Run a command in every host of a lab, with faults at given times, and report what the ranks have sent."""

from __future__ import annotations

import asyncio
import shlex
import textwrap
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from railweave.experiments import timeline
from railweave.experiments.fault_script import Entry, play
from railweave.experiments.hosts import JobOptions, require_program
from railweave.experiments.live.page import live_page
from railweave.experiments.program.collect import Collected, run_job
from railweave.experiments.tables import print_rails
from railweave.topologies.errors import LabError
from railweave.topologies.lab.lab import Lab
from railweave.topologies.lab.options import LabOptions
from railweave.topologies.model import Topology

LOOK_S = 0.05


@dataclass(frozen=True)
class ProgramOptions:
    """One run of a program."""

    topology: Topology
    command: Sequence[str]
    lab: LabOptions
    shares: Mapping[str, float] | None = None
    faults: Sequence[Entry] = ()
    join_s: float = 60.0  # until all ranks have called railweave.init; 0: they need not
    shell: bool = False  # open Mininet's prompt; leaving it ends the run
    live: int | None = None  # port of the live page, 0 for a free one; None: no page
    title: str = ""  # title of the job; empty: its command

    def report_of(self, rank: int) -> Path:
        """Return the file of a rank's report."""
        return self.lab.out / f"rank-{rank}.jsonl"


@dataclass(frozen=True)
class ProgramResult:
    """The counts of the ranks and of the network."""

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
    on_news: Callable[[str], None],
) -> ProgramResult:
    """Run the command in every host to its end. `on_line` gets each line of output with its rank.

    `on_news` gets the address of the live page, and faults and repairs.

    Raises WorkerFailed if the exit status of a rank is not 0. Raises LabError if a part of the network has
    failed, or if a rank has not called railweave.init in time. Raises OptionError before the network is made
    if the program does not exist.
    """
    require_program(options.command)
    topology = options.topology
    events: list[tuple[float, str]] = []

    def on_event(when: str, text: str) -> None:
        events.append((time.monotonic(), text))
        page.happened(text)
        on_news(f"{when}: {text}")

    planes = ", ".join(plane.name for plane in topology.planes)
    on_phase(f"making a network of {len(topology.hosts)} hosts on planes {planes}")
    reports = {rank: options.report_of(rank) for rank in range(len(topology.hosts))}
    title = options.title or shlex.join(options.command)
    network = replace(options.lab, flows=True)
    async with live_page(options.live, topology, title, on_news) as page, Lab(topology, network) as lab:
        async with page.watch(lab, reports, options.lab.out, lambda text: on_event("button", text)):
            if options.command:
                on_phase(f"running {title}")
            job = JobOptions(
                "run",
                options.command,
                options.shares,
                environment=page.environment,
                merged=True,
                report_of=options.report_of,
            )
            collected = await run_job(
                lab,
                job,
                on_line,
                _faults(lab, options, lambda at, text: on_event(f"{at:.2f} s", text)),
                until=lab.prompt() if options.shell else None,
                disturbed=lambda: bool(events),
            )
        switches = await lab.switch_counters()
    return ProgramResult(options, collected, switches, events)


async def _faults(lab: Lab, options: ProgramOptions, on_event: Callable[[float, str], None]) -> None:
    """Wait until the ranks have met, then play the script."""
    deadline = time.monotonic() + options.join_s
    ranks = range(len(lab.topology.hosts) if options.command and options.join_s else 0)
    while missing := [rank for rank in ranks if not options.report_of(rank).exists()]:
        if time.monotonic() > deadline:
            names = ", ".join(f"rank {rank} ({lab.topology.hosts[rank]})" for rank in missing)
            raise LabError(
                f"{names}: no call of railweave.init within {options.join_s:g} s",
                "one by each rank",
                "give more time by --join, or --join 0 for a program that does not call it",
            )
        await asyncio.sleep(LOOK_S)
    if options.faults:
        await play(lab, options.faults, on_event)


def as_json(result: ProgramResult) -> dict[str, Any]:
    """Return the result as JSON values."""
    return {
        "ok": result.ok,
        "hosts": len(result.options.topology.hosts),
        "program": list(result.options.command),
        "joined": list(result.collected.joined),
        "rows": [asdict(rail) for rail in result.collected.rails],
        "switch_counters": result.switch_counters,
    }


def print_report(result: ProgramResult, console: Console) -> None:
    """Print the rails' counts, or a note that no rank has called railweave.init."""
    if not result.collected.rails:
        console.print("no rank has called railweave.init, so there are no counts to compare")
        return
    print_rails(result.collected.rails, console)
    wrong = [rail.name for rail in result.collected.rails if not rail.bytes_agree]
    verdict = f"failed: bytes of {', '.join(wrong)} do not agree" if wrong else "all counts agree"
    console.print(verdict, style="bold")


def write_files(result: ProgramResult) -> dict[str, Path]:
    """Write the Chrome trace and the picture if there are slices. Return their paths by description."""
    if not result.collected.spans:
        return {}
    rails = [rail.name for rail in result.collected.rails]
    events = [(at - result.collected.start_s, text) for at, text in result.events]
    program = textwrap.shorten(shlex.join(result.options.command), 60, placeholder=" …")
    title = f"{len(result.options.topology.hosts)} hosts run {program}"
    return timeline.write_files(result.collected.spans, rails, result.options.lab.out, title, events)
