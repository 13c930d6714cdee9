# SPDX-License-Identifier: Apache-2.0
"""Runs the experiments of figures, draws the figures, judges their claims, and writes the report."""

from __future__ import annotations

import logging
import os
import platform
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from railweave.experiments import claims, provenance
from railweave.experiments.errors import OptionError
from railweave.experiments.figures import Experiment, Figure, drawing, figures
from railweave.experiments.measures import NotMeasured, Runs, limits_bps
from railweave.experiments.records import OK, Record, Records, counted, failures
from railweave.experiments.report.page import Entry, page
from railweave.experiments.runner import Runner
from railweave.experiments.scenario import Scenario
from railweave.topologies.errors import LabError

# Estimates of time, for `seconds`.
LAB_S = 4.0  # to make a network and to remove it
START_S = 1.0  # to start a run
START_PER_HOST_S = {"gloo": 2.0}  # to start one host's process, by the contender's kind
START_OF_OTHERS_S = 0.25  # the same for all other kinds
CALL_S, CALL_PER_HOST_S = 0.0005, 0.0002  # time of a call without data
WARM_UP = 5  # calls in addition to the workload's warm-up
BATCH = 10  # a run reads its clock after this many calls

Step = Scenario | Experiment


@dataclass(frozen=True)
class Options:
    """The figures to reproduce, and the options of the command."""

    figures: Sequence[Figure]
    out: Path
    quick: bool = False
    runs: int | None = None  # rounds of each scenario; None: the number in the figure's file

    def plan(self, figure: Figure) -> list[Step]:
        """Return the scenarios and experiments that a figure needs."""
        steps = figure.plan(quick=self.quick)
        if self.runs is None:
            return steps
        return [replace(s, repetitions=self.runs) if isinstance(s, Scenario) else s for s in steps]

    def command(self, *figures: str) -> str:
        """Return the command that repeats these figures."""
        quick, runs = ["--quick"] * self.quick, [] if self.runs is None else ["--repeat", str(self.runs)]
        return shlex.join(["railweave", "reproduce", *figures, *quick, *runs, "--out", str(self.out)])


def check(options: Options) -> None:
    """Raise OptionError for wrong names, claims or networks, or for a folder that cannot be used."""
    for figure in options.figures:
        figure.check()
        for step in options.plan(figure):
            if isinstance(step, Scenario):
                step.check()
    _claim(options.out)


def _claim(out: Path) -> None:
    """Make the folder for results, or accept one that this command made. Raise OptionError for any other."""
    records = Records(out / "records")
    try:
        out.mkdir(parents=True, exist_ok=True)
        records.read()  # raises for records of older versions
        if any(out.iterdir()) and not records.ours():
            raise OptionError(
                f"--out {out}: the folder has files that this command did not write",
                "a new folder, or one with the records of earlier figures",
                "name another one",
            )
        records.path.mkdir(exist_ok=True)
    except OSError as error:
        raise OptionError(
            f"--out {out}: {error.strerror}", "a folder that can be written to", "name another one"
        ) from None


def seconds(step: Step) -> float:
    """Return an estimate of the seconds that a step takes, from the limits of its links."""
    if isinstance(step, Experiment):
        return step.seconds
    hosts = len(step.network.hosts)
    work = step.workload
    total = LAB_S
    for contender in step.contenders:
        limit_bps = sum(limits_bps(step, contender).values()) or 1e9
        one_s = [CALL_S + CALL_PER_HOST_S * hosts + 8 * size / limit_bps for size in work.sizes]
        if work.messages:
            one_s = [work.compute_s + sum(CALL_S + 8 * size / limit_bps for size in work.messages)]
        start_s = START_S + START_PER_HOST_S.get(contender.kind, START_OF_OTHERS_S) * hosts
        timed_s = [min(work.iterations * each, max(work.seconds, BATCH * each)) for each in one_s]
        warm_up = work.warmup + WARM_UP if work.warmup else 0
        run_s = start_s + sum(timed_s) + warm_up * sum(one_s)
        total += run_s * (step.repetitions + (2 if step.control else 0))
    return total


async def reproduce(options: Options, on_phase: Callable[[str], None] = lambda _: None) -> list[str]:
    """Run all steps that have not succeeded yet, write the report after each figure; return the failures.

    Records are kept: the same command continues after an interruption, and runs failed steps again.
    Raises OptionError.
    """
    records = Records(options.out / "records")
    if others := other_sources(records.read()):
        logging.getLogger(__name__).warning("%s: %s", records.path, others)
    todo = {step.key: step for figure in options.figures for step in options.plan(figure)}
    left_s = {key: seconds(step) for key, step in todo.items()}
    failed: list[str] = []
    for figure in options.figures:
        for step in options.plan(figure):
            if step.key not in left_s:
                continue  # another figure has run it
            on_phase(f"{figure.name}: {step.name}, about {sum(left_s.values()) / 60:.0f} min left")
            try:
                await _run(step, records, options.out, on_phase)
            except LabError as error:
                failed.append(f"{figure.name}, {step.name}: {error}")
                on_phase(failed[-1])
            del left_s[step.key]
        try:
            write(options, records)
        except OSError as error:
            raise OptionError(
                f"--out {options.out}: {error.strerror}; finished runs are recorded",
                "room for the report",
                "make room, and run the command again",
            ) from error
    return failed + failures([record for record in records.read() if record.scenario in todo])


def other_sources(records: Sequence[Record]) -> str:
    """Return a warning if another version of railweave made some of the records; else an empty string."""
    now = provenance.source(provenance.commit(), provenance.versions())
    sources = Counter(provenance.source(record.commit, record.versions) for record in records)
    others = {source: count for source, count in sources.items() if source != now}
    if not others:
        return ""
    named = ", ".join(f"{count} of {source}" for source, count in others.items())
    return (
        f"{sum(others.values())} of {len(records)} records are not of this version ({now}): {named}. "
        "Give --out a new folder to measure everything with this version"
    )


async def _run(step: Step, records: Records, out: Path, on_phase: Callable[[str], None]) -> None:
    folder = out / "logs" / step.key
    if isinstance(step, Scenario):
        await Runner(step, out, on_phase=on_phase).run()
        return
    known = records.of(step.key)
    if failures(known) or not any(record.status == OK for record in known):
        for record in await step.records(folder, on_phase):
            records.append(record)


def write(options: Options, records: Records) -> Path:
    """Write report.html, and an SVG and a PDF of each complete figure; return the report's path."""
    entries = list(_entries(options, records))
    for each in entries:
        if each.svg:
            (options.out / f"{each.figure.name}.svg").write_text(each.svg)
            (options.out / f"{each.figure.name}.pdf").write_bytes(each.pdf)
    path = options.out / "report.html"
    command = options.command(*(figure.argument for figure in options.figures))
    warning = other_sources(records.read())
    path.write_text(page(entries, command, machine(), quick=options.quick, warning=warning))
    return path


def _entries(options: Options, records: Records) -> Iterator[Entry]:
    every = counted(records.read())
    for figure in {each.name: each for each in (*figures(), *options.figures)}.values():
        if figure in options.figures or complete(options, figure, every):
            yield entry(options, figure, every)


def complete(options: Options, figure: Figure, records: Sequence[Record]) -> bool:
    """Return whether the records have all that a figure needs."""
    keys = {step.key for step in options.plan(figure)}
    return keys <= {record.scenario for record in records}


def entry(options: Options, figure: Figure, records: Sequence[Record]) -> Entry:
    """Draw and judge a figure from its records, which `counted` has selected."""
    plan = options.plan(figure)
    keys, names = {step.key for step in plan}, {step.name for step in plan}
    runs = Runs([record for record in records if record.scenario in keys])
    asked = [claim for claim in figure.claims if claim.planned(names)]
    svg, pdf = _drawn(figure, runs)
    return Entry(
        figure,
        options.command(figure.argument),
        svg,
        pdf,
        [claims.judge(claim, runs) for claim in asked],
        runs,
        len(figure.claims) - len(asked),
    )


def _drawn(figure: Figure, runs: Runs) -> tuple[str, bytes]:
    try:
        if runs.kept:
            drawn = figure.draw(runs)
            return drawing.svg(drawn, figure.name), drawing.pdf(drawn)
    except NotMeasured:
        pass
    return "", b""


def machine() -> Mapping[str, str]:
    """Return the processor, the memory and the system of this machine."""
    cpus = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return {
        "processor": f"{os.cpu_count() or 1} x {cpus[0].partition(': ')[2] if cpus else platform.machine()}",
        "memory": f"{memory_gib():.1f} GiB",
        "system": f"Linux {platform.release()}, Python {platform.python_version()}",
    }


def memory_gib() -> float:
    """Return the memory of this machine."""
    return int(Path("/proc/meminfo").read_text().split()[1]) / (1 << 20)
