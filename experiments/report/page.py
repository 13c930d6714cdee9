# SPDX-License-Identifier: Apache-2.0
"""Writes report.html: for each figure the plot, the claims with verdicts, the conditions and the command."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from railweave.experiments import claims as rules
from railweave.experiments.allreduce.report import rates_text
from railweave.experiments.claims import Verdict, range_text
from railweave.experiments.figures import Figure, drawing, publications
from railweave.experiments.measures import Measured, Runs
from railweave.experiments.records import CPU, LINKS, Record
from railweave.experiments.scenario import Scenario
from railweave.experiments.units import number_text

MEANINGS = {
    rules.REPRODUCED: "the number lies in the paper's range, or in the expected range if the paper has none",
    rules.SHAPE_ONLY: "the number lies in the expected range, but it differs from the paper's or cannot be "
    "compared with it, or the CPU was the bottleneck of a claim about links",
    rules.NOT_REPRODUCED: "the number lies outside of these ranges",
    rules.NOT_MEASURED: "a run is missing",
}


@dataclass(frozen=True)
class Entry:
    """One figure in the report."""

    figure: Figure
    command: str
    svg: str  # empty if nothing was measured
    pdf: bytes  # empty if nothing was measured
    verdicts: Sequence[Verdict]
    runs: Runs
    left_out: int = 0  # claims that only the full set measures, in a quick report

    @property
    def counts(self) -> Counter[str]:
        """Return the number of claims by verdict."""
        return Counter(verdict.verdict for verdict in self.verdicts)


def page(
    entries: Sequence[Entry], command: str, machine: Mapping[str, str], *, quick: bool, warning: str = ""
) -> str:
    """Return the page; `warning` is its first line."""
    templates = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    return templates.get_template("page.html").render(
        entries=entries,
        command=command,
        machine=machine,
        quick=quick,
        warning=warning,
        total=sum((entry.counts for entry in entries), Counter[str]()),
        meanings=MEANINGS,
        papers=publications(),
        colours=drawing.DARK,
        variable=drawing.variable,
        themed=drawing.themed,
        conditions=conditions,
        facts=facts,
        range_text=range_text,
        measured_text=measured_text,
        count=count,
    )


def measured_text(found: Measured) -> tuple[str, str]:
    """Return a measured number and its interval as text; the interval is empty for a single value."""
    interval = (
        f" [{number_text(found.low, 3)}, {number_text(found.high, 3)}]" if found.low != found.high else ""
    )
    return number_text(found.value, 3), interval


def conditions(runs: Runs) -> Iterator[tuple[str, ...]]:
    """Yield name, links, rounds, idle and stolen CPU time, and bottlenecks of each network."""
    for name, records in runs.kept.items():
        cpu = [(record.cpu.idle, record.cpu.stolen) for record in records if record.cpu is not None]
        marks = Counter(record.bottleneck for record in records)
        yield (
            name,
            _network(runs.scenarios.get(name), records[0]),
            count(len({record.round for record in records}), "round"),
            *((f"{share:.0%}" for share in np.mean(cpu, axis=0)) if cpu else ("-", "-")),
            " ".join(f"{mark} {marks[mark]}" for mark in (LINKS, CPU) if marks[mark]) or "-",
        )


def facts(runs: Runs) -> dict[str, str]:
    """Return commit, kernel, versions and times of the runs."""
    every = [record for records in runs.kept.values() for record in records]
    return {
        "commit": _distinct(record.commit for record in every),
        "kernel": _distinct(record.kernel for record in every),
        "versions": _distinct(f"{k} {v}" for record in every for k, v in sorted(record.versions.items())),
        "measured": f"{min((r.at for r in every), default='')} to {max((r.at for r in every), default='')}",
    }


def _network(scenario: Scenario | None, record: Record) -> str:
    if scenario is None:  # an Experiment
        values = (f"{name} {value}" for name, value in record.configuration.items() if name != "experiment")
        return ", ".join(values)
    extras = (
        ("noise", f"{scenario.noise:.0%}" if scenario.noise else ""),
        ("loss", ", ".join(f"{plane} {part:.2%}" for plane, part in scenario.loss.items())),
        ("impair", scenario.impair),
        ("faults", scenario.faults),
    )
    more = "".join(f"; {what} {value}" for what, value in extras if value)
    return f"{len(scenario.network.hosts)} hosts, {rates_text(scenario)}{more}"


def _distinct(values: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(value for value in values if value))


def count(number: int, what: str) -> str:
    """Return a number with its noun."""
    return f"{number} {what}" + ("s" if number != 1 else "")
