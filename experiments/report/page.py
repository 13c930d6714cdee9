# SPDX-License-Identifier: Apache-2.0
"""Writes report.html: for each figure the plot, the claims with verdicts, the conditions and the command."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from string import Template

from railweave.experiments import claims as rules
from railweave.experiments.allreduce.report import rates_text
from railweave.experiments.claims import Verdict, range_text
from railweave.experiments.figures import drawing, publications
from railweave.experiments.measures import Measured, Runs
from railweave.experiments.records import CPU, LINKS, Record
from railweave.experiments.scenario import Scenario
from railweave.experiments.units import number_text

FOLDER = Path(__file__).parent
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

    name: str
    title: str
    about: str
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
    contents = "".join(
        f'<a href="#{entry.name}"><b>{entry.name} · {escape(entry.title)}</b>'
        f"<span>{_tally(entry.counts)}</span></a>"
        for entry in entries
    )
    return _filled(
        "page.html",
        warning=f'<p class="warn">{escape(warning)}</p>' if warning else "",
        style=FOLDER.joinpath("page.css").read_text() + _colours(),
        quick=" This is a quick run, with fewer sizes, rounds and networks than the full set."
        if quick
        else "",
        papers="; ".join(f"{escape(each.name)}: {escape(each.published)}" for each in publications()),
        total=_tally(sum((entry.counts for entry in entries), Counter[str]())),
        contents=contents,
        command=escape(command),
        machine=_pairs(machine),
        meanings="".join(f"<dt>{_mark(verdict)}</dt><dd>{text}</dd>" for verdict, text in MEANINGS.items()),
        sections="".join(_section(entry) for entry in entries),
    )


def _filled(template: str, **values: str) -> str:
    return Template(FOLDER.joinpath(template).read_text()).substitute(values)


def _colours() -> str:
    """Return the plots' colours as CSS variables, for light and for dark."""
    light, dark = (
        "".join(f"{drawing.variable(name)}:{value};" for name, value in colours)
        for colours in ([(name, name) for name in drawing.DARK], drawing.DARK.items())
    )
    return f":root{{{light}}}@media (prefers-color-scheme:dark){{:root{{{dark}}}}}"


def _section(entry: Entry) -> str:
    missing = "".join(
        f"<li>{escape(who)}: {escape(why)}</li>" for who, why in entry.runs.incomplete().items()
    )
    heading = '<div class="warn"><p>These runs did not complete:</p>'
    return _filled(
        "section.html",
        name=entry.name,
        title=escape(entry.title),
        tally=_tally(entry.counts),
        about=escape(entry.about),
        picture=f"<figure>{drawing.themed(entry.svg)}</figure>"
        if entry.svg
        else "<p>Nothing is measured yet.</p>",
        missing=f"{heading}<ul>{missing}</ul></div>" if missing else "",
        rows="".join(_row(verdict) for verdict in entry.verdicts),
        left_out=f'<p class="soft">{count(entry.left_out, "further claim")} in the full set.</p>'
        if entry.left_out
        else "",
        conditions=_conditions(entry.runs),
        command=escape(entry.command),
    )


def _row(verdict: Verdict) -> str:
    claim = verdict.claim
    paper = "-"
    if claim.paper:
        paper = f"{escape(claim.paper.text)}<small>{escape(claim.paper.source)} ({claim.paper.mark})</small>"
    unit = f" {claim.unit}" if claim.unit else ""
    expected = f"{range_text(claim.expected)}{unit}<small>{escape(claim.expected_because)}</small>"
    measured = _measured(verdict.measured, unit) if verdict.measured else "-"
    reason = f"<small>{escape(verdict.reason)}</small>" if verdict.reason else ""
    return (
        f"<tr><td>{escape(claim.text)}<small>{claim.kind}</small></td><td>{paper}</td><td>{expected}</td>"
        f'<td class="number">{measured}</td><td>{_mark(verdict.verdict)}{reason}</td></tr>'
    )


def _measured(found: Measured, unit: str) -> str:
    value, interval = measured_text(found)
    where = " · ".join(part for part in (found.where, count(found.rounds, "run")) if part)
    return f"<b>{value}</b>{interval}{unit}<small>{escape(where)}</small>"


def measured_text(found: Measured) -> tuple[str, str]:
    """Return a measured number and its interval as text; the interval is empty for a single value."""
    interval = (
        f" [{number_text(found.low, 3)}, {number_text(found.high, 3)}]" if found.low != found.high else ""
    )
    return number_text(found.value, 3), interval


def _mark(verdict: str, count: str = "") -> str:
    return f'<span class="mark {verdict.replace(" ", "-")}">{count}{verdict}</span>'


def _tally(counts: Mapping[str, int]) -> str:
    return " ".join(_mark(verdict, f"{counts[verdict]} ") for verdict in MEANINGS if counts.get(verdict))


# ------------------------------------------------------------ conditions


def _conditions(runs: Runs) -> str:
    """Return a table with a row per network."""
    rows = []
    for name, records in runs.kept.items():
        cpu = [record.cpu for record in records if record.cpu is not None]
        idle = sum(each.idle for each in cpu) / len(cpu) if cpu else None
        stolen = sum(each.stolen for each in cpu) / len(cpu) if cpu else None
        marks = Counter(record.bottleneck for record in records)
        cells = (
            name,
            _network(runs.scenarios.get(name), records[0]),
            count(len({record.round for record in records}), "round"),
            "-" if idle is None else f"{idle:.0%}",
            "-" if stolen is None else f"{stolen:.0%}",
            " ".join(f"{mark} {marks[mark]}" for mark in (LINKS, CPU) if marks[mark]) or "-",
        )
        rows.append("".join(f"<td>{escape(cell)}</td>" for cell in cells))
    every = [record for records in runs.kept.values() for record in records]
    facts = {
        "commit": _distinct(record.commit for record in every),
        "kernel": _distinct(record.kernel for record in every),
        "versions": _distinct(f"{k} {v}" for record in every for k, v in sorted(record.versions.items())),
        "measured": f"{min((r.at for r in every), default='')} to {max((r.at for r in every), default='')}",
    }
    heads = "".join(
        f"<th>{head}</th>"
        for head in ("network", "links", "rounds", "CPU idle", "CPU stolen", "bottleneck, runs")
    )
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    return f'<div class="scroll"><table><tr>{heads}</tr>{body}</table></div><dl>{_pairs(facts)}</dl>'


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


def _pairs(values: Mapping[str, str]) -> str:
    return "".join(
        f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in values.items() if value
    )


def _distinct(values: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(value for value in values if value))


def count(number: int, what: str) -> str:
    """Return a number with its noun."""
    return f"{number} {what}" + ("s" if number != 1 else "")
