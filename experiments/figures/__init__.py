# SPDX-License-Identifier: Apache-2.0
"""The papers' figures. Each is a folder with the runs (scenario.py), the plot (plot.py) and claims.toml."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import tomllib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias

from railweave.experiments import provenance
from railweave.experiments.claims import Claims
from railweave.experiments.errors import OptionError
from railweave.experiments.measures import Runs
from railweave.experiments.records import OK, Record
from railweave.experiments.scenario import Scenario
from railweave.topologies.values import build

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

FOLDER = Path(__file__).parent
FILES = ("scenario.py", "plot.py", "claims.toml", "README.md")
OnPhase: TypeAlias = Callable[[str], None]


@dataclass(frozen=True)
class Experiment:
    """A measurement by a separate program. Its records stand beside those of scenarios."""

    name: str
    key: str  # differs where the options differ
    seconds: float  # estimated duration
    run: Callable[[Path, OnPhase], Awaitable[list[Record]]] = field(compare=False)  # (folder for logs, …)


@dataclass(frozen=True)
class Publication:
    """A paper with figures here: an entry of papers.toml."""

    letters: str  # the first letters of its figures' names
    name: str
    title: str
    published: str
    about: str


@dataclass(frozen=True)
class Figure:
    """A figure's folder."""

    folder: Path

    @property
    def name(self) -> str:
        """Return the name, such as `N1`."""
        return self.folder.name

    @property
    def argument(self) -> str:
        """Return the argument that names the figure on the command line."""
        return self.name if self.folder.parent == FOLDER else str(self.folder)

    @cached_property
    def claims(self) -> Claims:
        """Return the claims. Raise OptionError for a mistake in the file."""
        return Claims.load(self.folder / "claims.toml")

    def plan(self, *, quick: bool) -> list[Scenario | Experiment]:
        """Return the scenarios and experiments that the figure needs."""
        planned: list[Scenario | Experiment] = list(self._module("scenario").plan(quick))
        return planned

    def draw(self, runs: Runs) -> Drawing:
        """Draw the measured values. Raise NotMeasured if nothing was measured."""
        drawing: Drawing = self._module("plot").draw(runs)
        return drawing

    def _module(self, name: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(
            f"railweave_figure_{self.name}_{name}", self.folder / f"{name}.py"
        )
        assert spec is not None  # noqa: S101 - the suffix says that it is Python
        assert spec.loader is not None  # noqa: S101
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module


def figures(names: Sequence[str] = ()) -> list[Figure]:
    """Return the figures with these names or folders. Without a name, return all figures of the papers.

    A paper's letter selects all figures of the paper.
    """
    known = sorted(folder.name for folder in FOLDER.iterdir() if (folder / "claims.toml").exists())
    papers = {name[0]: [other for other in known if other[0] == name[0]] for name in known}
    found = []
    for name in dict.fromkeys(each for given in names or known for each in papers.get(given, [given])):
        folder = FOLDER / name if name in known else Path(name)
        missing = [file for file in FILES if not (folder / file).is_file()]
        if missing:
            raise OptionError(
                f"figure {name!r}",
                f"one of {', '.join(known)}, or a folder with {', '.join(FILES)}",
                "correct the name",
            )
        found.append(Figure(folder))
    return found


def publications() -> list[Publication]:
    """Return the papers, in the order of papers.toml."""
    listed = tomllib.loads((FOLDER / "papers.toml").read_text())["papers"]
    return [build(Publication, each, "papers.toml") for each in listed]


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
