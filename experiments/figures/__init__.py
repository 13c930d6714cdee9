# SPDX-License-Identifier: Apache-2.0
"""Figures as data: scenarios, experiments, the panels of the plot, and claims.

The figures of a paper are tables of one TOML file. A figure of your own is a folder with figure.toml.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import json
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from railweave.errors import Unavailable, UserError, of_file
from railweave.experiments import provenance
from railweave.experiments.claims import Claim, needed
from railweave.experiments.errors import OptionError
from railweave.experiments.figures import modules, panels
from railweave.experiments.figures.entries import Filler, listed, scenario_values
from railweave.experiments.figures.modules import OnPhase
from railweave.experiments.measures import Runs
from railweave.experiments.records import FAILED, OK, SKIPPED, Record
from railweave.experiments.scenario import Scenario
from railweave.topologies.errors import TopologyError
from railweave.topologies.values import build

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

FOLDER = Path(__file__).parent
PAPERS = ("nezha", "multicast", "netreduce", "rina", "algorithms")
EXACT = "exact"  # the claim that every figure with scenarios has
OWN, TEXT = "figure.toml", "README.md"  # the files of a figure of your own


@dataclass(frozen=True)
class Experiment:
    """A measurement by a separate program. Its records stand beside those of scenarios."""

    name: str
    run: str  # the module with the function `measure(options, out, on_phase)`
    contender: str
    seconds: float  # estimated duration
    options: Mapping[str, Any]
    folder: Path = FOLDER  # of the figure's file

    @property
    def key(self) -> str:
        """Identify the measurement. The key is different for different options."""
        return key_of(self.name, self.options)

    def program(self) -> Callable[..., Any]:
        """Return the function. Raise OptionError if it is missing."""
        return modules.load(self.run, self.folder, "measure")

    async def records(self, out: Path, on_phase: OnPhase) -> list[Record]:
        """Run the program. Return a record for each mapping of numbers that it returns."""
        made = partial(run_by, self.name, self.options, contender=self.contender)
        measure = self.program()
        arguments = self.options, out, lambda phase: on_phase(f"{self.name}: {phase}")
        try:
            if inspect.iscoroutinefunction(measure):
                found = await measure(*arguments)
            else:
                found = await asyncio.to_thread(measure, *arguments)
        except UserError as error:
            status = SKIPPED if isinstance(error, Unavailable) else FAILED
            return [made(0, status=status, error=str(error))]
        return [made(place, extra=extra) for place, extra in enumerate(found)]


@dataclass(frozen=True, kw_only=True)
class Table:
    """A figure's table. Its entries may stand for several (see `entries`)."""

    title: str
    about: str  # the caption of the plot: one to three sentences
    claims: Any  # tables by id, or a list of tables
    panels: tuple[Any, ...]
    scenarios: Any = ()  # tables by name, or a list of tables
    experiments: Any = ()  # the same
    exact: bool = True  # a figure with scenarios claims that no element is wrong
    main: str = ""  # id of the claim that represents the figure in tables; the first one by default
    columns: int = 3  # panels beside each other, at most


@dataclass(frozen=True, kw_only=True)
class Figure(Table):
    """A figure: its table with the claims and panels that the entries stand for."""

    name: str
    path: Path  # of the TOML file
    templates: Mapping[str, Mapping[str, Any]]
    claims: tuple[Claim, ...]
    panels: tuple[panels.Panel, ...]

    @classmethod
    def make(cls, name: str, path: Path, table: Any, templates: Any) -> Figure:
        """Check a figure's table. Raise OptionError for the first mistake in it."""
        where = name if path.parent == FOLDER else "figure"
        read = build(Table, table, where)
        entries = [_without_empty(each) for each in Filler(templates).fill(listed(read.claims, "id"))]
        if read.scenarios and read.exact and EXACT not in [each.get("id") for each in entries]:
            entries.append(templates[EXACT])
        claims = [build(Claim, each, f"{where}.claims[{place}]") for place, each in enumerate(entries)]
        _require_unique("claim", [claim.id for claim in claims])
        for claim in claims:
            claim.check()
        if read.main and read.main not in [claim.id for claim in claims]:
            raise OptionError(f"main {read.main!r}", "the id of one of the claims", "correct the key main")
        drawn = Filler(templates, names=panels.NAMES).fill(read.panels)
        kinds = [
            panels.panel(each, path.parent, f"{where}.panels[{place}]") for place, each in enumerate(drawn)
        ]
        made = {"name": name, "path": path, "claims": tuple(claims), "panels": tuple(kinds)}
        return cls(templates=templates, **{**vars(read), **made})

    @property
    def argument(self) -> str:
        """Return the argument that names the figure on the command line."""
        return self.name if self.path.parent == FOLDER else str(self.path.parent)

    @property
    def text(self) -> str:
        """Return what a figure of a paper shows, in Markdown without the title."""
        return (FOLDER / "texts" / f"{self.name}.md").read_text()

    @property
    def headline(self) -> Claim:
        """Return the claim that represents the figure in tables."""
        return next((claim for claim in self.claims if claim.id == self.main), self.claims[0])

    def plan(self, *, quick: bool) -> list[Scenario | Experiment]:
        """Return the scenarios and experiments that the figure needs. Raise OptionError for a mistake."""
        filler = Filler(self.templates, quick)
        with _mistakes_in(self.path):
            scenarios = [
                build(Scenario, scenario_values(each), f"{self.name}.scenarios[{place}]")
                for place, each in enumerate(filler.fill(listed(self.scenarios, "name")))
            ]
            experiments = [
                replace(build(Experiment, each, f"{self.name}.experiments[{place}]"), folder=self.path.parent)
                for place, each in enumerate(filler.fill(listed(self.experiments, "name")))
            ]
            for each in experiments:
                each.program()
            steps: list[Scenario | Experiment] = [*scenarios, *experiments]
            _require_unique("scenario or experiment", [step.name for step in steps])
        return steps

    def check(self) -> None:
        """Raise OptionError if a claim or a panel names a scenario that the figure has in neither set."""
        names = dict.fromkeys(step.name for quick in (False, True) for step in self.plan(quick=quick))
        asked = [(f"claim {claim.id!r}", needed(claim.measure)) for claim in self.claims]
        asked += [(f"panel {place + 1}", sorted(each.needed())) for place, each in enumerate(self.panels)]
        for who, wanted in asked:
            for pattern in wanted:
                if not any(fnmatch(name, pattern) for name in names):
                    raise OptionError(
                        f"{self.path}: {self.name}: {who} names the scenario {pattern!r}",
                        f"one of {'; '.join(names)}",
                        "correct the name, or add the scenario",
                    )

    def draw(self, runs: Runs) -> Drawing:
        """Draw the panels that have measured values. Raise NotMeasured if none has."""
        return panels.draw(self.panels, runs, self.columns)


@dataclass(frozen=True)
class Publication:
    """A paper with figures here: the table `paper` of its file, and the other tables."""

    name: str
    title: str
    published: str
    about: str
    figures: tuple[Figure, ...]


def _without_empty(claim: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out empty tables: an entry for several claims gives `paper = {}` to those without a paper."""
    return {key: value for key, value in claim.items() if value != {}}


def _require_unique(what: str, names: Sequence[str]) -> None:
    for name, count in Counter(names).items():
        if count > 1:
            raise OptionError(
                f"{what} {name!r} stands {count} times", "different names", "add a name of `each` to it"
            )


def figures(names: Sequence[str] = ()) -> list[Figure]:
    """Return the figures with these names or folders. Without a name, return all figures of the papers.

    A paper's letter selects all figures of the paper.
    """
    known = {figure.name: figure for paper in publications() for figure in paper.figures}
    letters = {name[0]: [other for other in sorted(known) if other[0] == name[0]] for name in known}
    chosen = [each for given in names or sorted(known) for each in letters.get(given, [given])]
    return [known.get(name) or _own(Path(name), known) for name in dict.fromkeys(chosen)]


def publications() -> list[Publication]:
    """Return the papers with their figures."""
    return [_publication(FOLDER / f"{name}.toml") for name in PAPERS]


def _publication(path: Path) -> Publication:
    file = _read(path)
    paper, templates = file.pop("paper"), file.pop("templates", {})
    made = tuple(_made(name, path, table, templates) for name, table in file.items())
    return Publication(**paper, figures=made)


def _own(folder: Path, known: Mapping[str, Figure]) -> Figure:
    path = folder / OWN
    if not path.is_file() or not (folder / TEXT).is_file():
        raise OptionError(
            f"figure {str(folder)!r}",
            f"one of {', '.join(sorted(known))}, or a folder with {OWN} and {TEXT}",
            "correct the name",
        )
    file = _read(path)
    templates = file.pop("templates", {})
    return _made(folder.name, path, file, templates)


def _read(path: Path) -> dict[str, Any]:
    with _mistakes_in(path):
        return tomllib.loads(path.read_text())


def _made(name: str, path: Path, table: Any, templates: Any) -> Figure:
    with _mistakes_in(path):
        return Figure.make(name, path, table, {**_read(FOLDER / "templates.toml"), **templates})


@contextmanager
def _mistakes_in(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, TopologyError) as error:  # an OptionError is a ValueError
        raise of_file(OptionError, path, error, "a figure in TOML") from None


def run_by(name: str, options: Mapping[str, Any], round_: int, **fields: Any) -> Record:
    """Return the record of an experiment's run; `options` are its configuration."""
    return Record(
        **provenance.of_run(),
        scenario=key_of(name, options),
        name=name,
        kind="railweave",
        round=round_,
        status=fields.pop("status", OK),
        configuration={"experiment": name, **options},
        **fields,
    )


def key_of(name: str, options: Mapping[str, Any]) -> str:
    """Return the key of an experiment with these options."""
    return hashlib.sha256(json.dumps([name, options], sort_keys=True).encode()).hexdigest()[:16]
