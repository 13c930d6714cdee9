# SPDX-License-Identifier: Apache-2.0
"""`python -m railweave.experiments.publish OUT`: copy the results of `railweave reproduce` to the site.

The command writes docs/papers/reference.json, with the number of each claim, and a plot of each figure.
`make docs` makes the site's pages from these files and from the figures' folders, and computes the verdicts.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from railweave.experiments import reproduce
from railweave.experiments.claims import Claim, Verdict, not_measured, verdict
from railweave.experiments.errors import OptionError
from railweave.experiments.figures import Figure, drawing, figures
from railweave.experiments.measures import Measured
from railweave.experiments.records import Record, Records, counted
from railweave.experiments.scenario import Scenario
from railweave.topologies.values import build, plain

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "papers"
REFERENCE, PLOTS = "reference.json", "figures"


@dataclass(frozen=True)
class Result:
    """The number that a reference run gives for a claim."""

    measured: Measured | None = None
    missing: str = ""  # the reason, if nothing was measured

    def judge(self, claim: Claim) -> Verdict:
        """Return the verdict on the claim."""
        return verdict(claim, self.measured) if self.measured else not_measured(claim, self.missing)


@dataclass(frozen=True)
class FigureRun:
    """One figure in a reference run."""

    quick: bool  # fewer sizes, rounds and networks than the full set
    minutes: float  # estimated duration
    commit: str
    kernel: str  # major and minor version
    date: str  # of the last record
    claims: Mapping[str, Result] = field(default_factory=dict)  # by id


@dataclass(frozen=True)
class Reference:
    """A reference run: all figures that were complete in its folder."""

    cores: int
    memory_gib: float
    figures: Mapping[str, FigureRun] = field(default_factory=dict)  # by name

    @classmethod
    def load(cls, path: Path = FOLDER / REFERENCE) -> Reference:
        """Read the file."""
        return build(cls, json.loads(path.read_text()), str(path))


def publish(out: Path, to: Path = FOLDER) -> Reference:
    """Replace the reference run and its plots in `to` by the results in `out`."""
    records = Records(out / "records")
    if not records.ours():
        raise OptionError(
            f"{out}: no folder records", "the output folder of `railweave reproduce`", "name that folder"
        )
    if not to.is_dir():
        raise OptionError(f"{to}: no such folder", "a source tree of railweave", "run the command from one")
    every = counted(records.read())
    plots = to / PLOTS
    plots.mkdir(exist_ok=True)
    for old in plots.glob("*.svg"):
        old.unlink()
    runs = {}
    for figure in figures():
        if options := _complete(figure, every):
            entry = reproduce.entry(options, figure, every)
            if entry.svg:
                (plots / f"{figure.name}.svg").write_text(drawing.standalone(entry.svg))
            results = {
                each.claim.id: Result(each.measured, "" if each.measured else each.reason)
                for each in entry.verdicts
            }
            runs[figure.name] = _run(figure, options, entry.runs.records, results)
    made = Reference(os.cpu_count() or 1, round(reproduce.memory_gib(), 1), runs)
    (to / REFERENCE).write_text(json.dumps(plain(made), indent=1) + "\n")
    return made


def _complete(figure: Figure, records: Sequence[Record]) -> reproduce.Options | None:
    """Return the options with which the figure is complete: the full set, else the quick one, else None."""
    runs = Counter(record.scenario for record in records if not record.control)
    for quick in (False, True):
        options = reproduce.Options([figure], Path(), quick)
        if all(runs[step.key] >= _runs(step) for step in options.plan(figure)):
            return options
    return None


def _runs(step: reproduce.Step) -> int:
    return step.repetitions * len(step.contenders) if isinstance(step, Scenario) else 1


def _run(
    figure: Figure, options: reproduce.Options, records: Sequence[Record], results: Mapping[str, Result]
) -> FigureRun:
    last = max(records, key=lambda record: record.at)
    minutes = sum(reproduce.seconds(step) for step in options.plan(figure)) / 60
    kernel = ".".join(last.kernel.split(".")[:2])
    commits = dict.fromkeys(record.commit for record in records)
    return FigureRun(options.quick, round(minutes, 1), ", ".join(commits), kernel, last.at[:10], results)


def main(arguments: list[str]) -> int:
    """Publish the folder that the command line names, and list the figures."""
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print("usage: python -m railweave.experiments.publish OUT", file=sys.stderr)
        return 2
    try:
        made = publish(Path(arguments[0]))
    except OptionError as error:
        print(f"publish: {error}", file=sys.stderr)
        return error.status
    for name, run in made.figures.items():
        lost = sum(1 for result in run.claims.values() if result.missing)
        print(f"{name}  {'quick' if run.quick else 'full'}, {len(run.claims)} claims, {lost} not measured")
    if missing := [figure.name for figure in figures() if figure.name not in made.figures]:
        print(f"not in the reference run: {', '.join(missing)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
