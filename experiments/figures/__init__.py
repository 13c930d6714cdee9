# SPDX-License-Identifier: Apache-2.0
"""Figures of the papers, a folder each: what is run (scenario.py), drawn (plot.py), claimed (claims.toml)."""

from __future__ import annotations

import hashlib
import importlib.util
import json
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

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

FOLDER = Path(__file__).parent
FILES = ("scenario.py", "plot.py", "claims.toml", "README.md")
OnPhase: TypeAlias = Callable[[str], None]


@dataclass(frozen=True)
class Experiment:
    """What is measured by a program of its own, and recorded beside the scenarios' runs."""

    name: str
    key: str  # other options, other key
    seconds: float  # that it takes, about
    run: Callable[[Path, OnPhase], Awaitable[list[Record]]] = field(compare=False)  # (folder for logs, …)


@dataclass(frozen=True)
class Figure:
    """A figure's folder."""

    folder: Path

    @property
    def name(self) -> str:
        """Return what it is called: `N1`."""
        return self.folder.name

    @property
    def argument(self) -> str:
        """Return how the command line names it."""
        return self.name if self.folder.parent == FOLDER else str(self.folder)

    @cached_property
    def claims(self) -> Claims:
        """Return what it should show; OptionError if the file is not as it should be."""
        return Claims.load(self.folder / "claims.toml")

    def plan(self, *, quick: bool) -> list[Scenario | Experiment]:
        """Return what is run for it."""
        planned: list[Scenario | Experiment] = list(self._module("scenario").plan(quick))
        return planned

    def draw(self, runs: Runs) -> Drawing:
        """Draw what was measured; NotMeasured if nothing was."""
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
    """Return the figures of those names, or in folders of one's own; all of the papers if none is given.

    A paper's letter stands for all of its figures.
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


def run_by(name: str, options: Mapping[str, Any], round_: int, **fields: Any) -> Record:
    """Return a run of an experiment as a record; `options` are its configuration."""
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
    """Return the key of an experiment with such options."""
    return hashlib.sha256(json.dumps([name, options], sort_keys=True).encode()).hexdigest()[:16]
