# SPDX-License-Identifier: Apache-2.0
"""Run parts of the striping experiment, and judge their claims."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from railweave.experiments.allreduce import report
from railweave.experiments.allreduce.run import Sweep, run_all
from railweave.experiments.claims import NOT_MEASURED, NOT_REPRODUCED, Verdict, judge, range_text
from railweave.experiments.figures import drawing, panels
from railweave.experiments.measures import Runs
from railweave.experiments.striping import regret, trace
from railweave.experiments.striping.parts import Part

NOTE = "Emulated hosts and links on one machine."


@dataclass(frozen=True)
class Found:
    """The records of one scenario of a part."""

    part: str
    sweep: Sweep

    def lines(self) -> list[str]:
        """Return the results as text."""
        rows = [report.line(row) for rows in self.sweep.rows.values() for row in rows]
        if self.part == "convergence":
            shown = trace.lines(self.sweep.records[0])
        else:
            shown = [report.LINES.titles, *rows, *report.comparisons(self.sweep)]
        return [f"# {self.part}: {self.sweep.scenario.name}", *shown]

    def as_json(self) -> dict[str, Any]:
        """Return the results as JSON values."""
        extra = self.sweep.records[0].extra
        traced = {name: extra[name] for name in ("rail", "phases", "shares") if name in extra}
        return {
            "part": self.part,
            "name": self.sweep.scenario.name,
            **report.as_json(self.sweep),
            **traced,
        }


async def run(
    parts: Mapping[str, Part],
    out: Path,
    on_phase: Callable[[str], None] = lambda _: None,
    on_found: Callable[[Found], None] = lambda _: None,
) -> list[Found]:
    """Run one part after the other. Raises LabError and OptionError."""
    found: list[Found] = []

    def keep(name: str, sweep: Sweep) -> None:
        if name == "convergence":
            records = [trace.with_phases(each, sweep.scenario) for each in sweep.records]
            sweep = replace(sweep, records=records)
        found.append(Found(name, sweep))
        on_found(found[-1])

    def say(name: str, text: str) -> None:
        on_phase(f"{name}: {text}")

    for name, part in parts.items():
        await run_all(
            part.scenarios,
            out / name,
            partial(say, name),
            on_sweep=partial(keep, name),
        )
    return found


def runs_of(found: Sequence[Found], part: str) -> Runs:
    """Return the runs of a part."""
    return Runs([record for each in found if each.part == part for record in each.sweep.records])


def verdicts(
    parts: Mapping[str, Part], found: Sequence[Found], regrets: Sequence[regret.Regret] = ()
) -> list[Verdict]:
    """Judge the claims of all parts."""
    judged = [judge(claim, runs_of(found, name)) for name, part in parts.items() for claim in part.claims]
    learnt = Runs([each.record for each in regrets])
    return [*judged, *(judge(claim, learnt) for each in regrets for claim in each.claims)]


def holds(verdict: Verdict) -> bool:
    """Return whether the measurement supports the claim."""
    return verdict.verdict not in (NOT_REPRODUCED, NOT_MEASURED)


def as_json(
    found: Sequence[Found], judged: Sequence[Verdict] = (), regrets: Sequence[regret.Regret] = ()
) -> dict[str, Any]:
    """Return all results as JSON values."""
    wrong = sum(record.wrong for each in found for record in each.sweep.records)
    return {
        "claims": [
            {
                "claim": each.claim.text,
                "value": each.measured.value if each.measured else None,
                "wanted": range_text(each.claim.expected),
                "ok": holds(each),
            }
            for each in judged
        ],
        "rows": [
            *(each.as_json() for each in found),
            *({"part": "regret", "name": each.name, **each.record.extra} for each in regrets),
        ],
        "wrong": wrong,
        "ok": wrong == 0,
    }


def file_of(path: Path, part: str) -> Path:
    """Return the file of one part's plot."""
    return path.with_name(f"{path.stem}-{part}{path.suffix}")


def draw(parts: Mapping[str, Part], found: Sequence[Found], path: Path) -> list[Path]:
    """Write a plot per part that has panels, named as `path` with the part; PNG, SVG or PDF."""
    written = []
    for name, part in parts.items():
        if part.panels:
            written.append(file_of(path, name))
            figure = panels.draw(part.panels, runs_of(found, name), len(part.panels))
            drawing.save(figure, f"{figure.get_supxlabel()} {NOTE}", written[-1])
    return written
