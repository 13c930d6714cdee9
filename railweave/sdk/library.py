# SPDX-License-Identifier: Apache-2.0
"""Find an algorithm: in railweave's own folder, in a folder of the user, or in an installed package."""

from __future__ import annotations

import hashlib
import importlib
import importlib.machinery
import importlib.util
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from railweave.controller.state import SwitchState
from railweave.errors import UserError
from railweave.p4src.artifacts import Artifact
from railweave.sdk.errors import AlgorithmError, place
from railweave.sdk.machines import Array, Endpoint, Job, Server
from railweave.sdk.manifest import FILE, JOBS, Manifest
from railweave.topologies.model import Plane

GROUP = "railweave.algorithms"  # of entry points: a name, and the package of the algorithm
OWN = Path(__file__).parents[1] / "algorithms"


@dataclass(frozen=True)
class Algorithm:
    """An algorithm's folder."""

    folder: Path
    package: str  # import name of the folder
    manifest: Manifest

    @property
    def name(self) -> str:
        """The name, which is the folder's."""
        return self.manifest.name

    def artifact(self, lanes: int = 0) -> Artifact:
        """Return the compiled program, by default that of the manifest's first number of lanes."""
        lanes = lanes or self.manifest.lanes[0]
        folder = self.folder / "build" / f"lanes{lanes}"
        found = Artifact(self.name, lanes, folder / "main.json", folder / "main.p4info.txtpb")
        if not found.json_path.is_file() or not found.p4info_path.is_file():
            raise AlgorithmError(
                f"{folder} has no compiled program",
                f"main.json and main.p4info.txtpb for {lanes} lanes",
                f"compile it: railweave algorithm compile {shlex.quote(str(self.folder))}",
            )
        return found

    def wanted(self, plane: Plane, jobs: Sequence[Job]) -> Mapping[str, SwitchState]:
        """Return the state that each P4 switch of a plane needs for these jobs."""
        control, states = self._module("control"), {}
        try:
            states = dict(control.wanted(plane, jobs))
        except UserError:
            raise
        except Exception as error:
            given = f"{self.folder}/control.py: {type(error).__name__}: {error}{place(error, self.folder)}"
            raise AlgorithmError(given, "wanted() that returns the states", "correct it") from error
        for name, state in states.items():
            if not (isinstance(state, SwitchState) and isinstance(state.entries, frozenset)):
                raise AlgorithmError(
                    f"{self.folder}/control.py: the state of switch {name} is {state!r:.80}",
                    "a SwitchState, with frozensets of entries and multicasts",
                    "correct wanted()",
                )
        for switch in plane.switches:
            if switch.p4runtime and switch.name not in states:
                raise AlgorithmError(
                    f"{self.folder}/control.py: no state for switch {switch.name}",
                    "a state for each P4 switch",
                    "add it in wanted()",
                )
        return states

    def receivers(self, plane: Plane) -> list[str]:
        """Return the address to which the server sends the results of each rank."""
        of = getattr(self._module("control"), "receivers", None)
        return list(of(plane)) if of else [nic.address for nic in plane.nics]

    def crossings(self, plane: Plane) -> float:
        """Return how often the tensor crosses the link that carries it most often, in one direction."""
        of = getattr(self._module("control"), "crossings", None)
        return float(of(plane)) if of else 1.0

    @cached_property
    def endpoint(self) -> type[Endpoint]:
        """The class of a rank."""
        return self._class("endpoint", Endpoint)

    @property
    def restarts(self) -> bool:
        """Whether its ranks can begin again behind the packets of earlier endpoints."""
        return self.server is None and self.endpoint.start_at is not Endpoint.start_at

    @cached_property
    def server(self) -> type[Server] | None:
        """The class of the parameter server, if the algorithm has one."""
        return self._class("server", Server) if (self.folder / "server.py").is_file() else None

    def error_bound(self, given: Sequence[Array]) -> float:
        """Return the greatest error of a float32 result for these vectors, beyond its rounding."""
        return 0.0 if self.manifest.accuracy == "exact" else self.endpoint.error_bound(given)

    def job(self, number: int, ranks: int, options: Mapping[str, Any], lanes: int = 0) -> Job:
        """Return a job. AlgorithmError if it has no port, or an option that the manifest does not name."""
        if not 0 <= number < JOBS:
            raise AlgorithmError(f"job {number} of {self.name}", f"0 to {JOBS - 1}", "run fewer jobs")
        for name in options:
            if name not in self.manifest.options:
                known = ", ".join(self.manifest.options) or "no option"
                raise AlgorithmError(f"{self.name} with option {name!r}", known, "correct or remove it")
        manifest = self.manifest
        return Job(number, ranks, manifest.rank_port(number), lanes or manifest.lanes[0], options)

    def _class(self, module: str, base: type[Any]) -> type[Any]:
        found = getattr(self._module(module), base.__name__, None)
        if not (isinstance(found, type) and issubclass(found, base)):
            raise AlgorithmError(
                f"{self.folder / module}.py has no class {base.__name__}",
                f"one that derives from railweave.sdk.{base.__name__}",
                "add it",
            )
        return found

    def _module(self, name: str) -> ModuleType:
        if not (self.folder / f"{name}.py").is_file():
            raise AlgorithmError(f"{self.folder} has no {name}.py", "this file", "add it")
        if self.package not in sys.modules:
            importlib.import_module(self.package)
        try:
            return importlib.import_module(f"{self.package}.{name}")
        except Exception as error:
            raise AlgorithmError(
                f"{self.folder / name}.py: {type(error).__name__}: {error}", "a module", "correct it"
            ) from error


def names() -> list[str]:
    """Return the names of railweave's own algorithms, and of those of installed packages."""
    own = (path.parent.name for path in OWN.glob(f"*/{FILE}"))
    return sorted({*own, *(point.name for point in entry_points(group=GROUP))})


def find(text: str) -> Algorithm:
    """Return an algorithm by its name, or by the path of its folder, which has a slash.

    Raise AlgorithmError for an unknown name, and for a mistake in the manifest.
    """
    if "/" in text:
        folder = Path(text).resolve()
        return Algorithm(folder, _package(folder), Manifest.load(folder))
    if (OWN / text / FILE).is_file():
        return Algorithm(OWN / text, f"railweave.algorithms.{text}", Manifest.load(OWN / text))
    for point in entry_points(group=GROUP, name=text):
        try:
            folder = Path(next(iter(importlib.import_module(point.value).__path__)))
        except Exception as error:
            raise AlgorithmError(
                f"package {point.value} of algorithm {text!r}: {type(error).__name__}: {error}",
                f"a package with {FILE}",
                "repair or remove it",
            ) from error
        return Algorithm(folder, point.value, Manifest.load(folder))
    if (Path(text) / FILE).is_file():
        raise AlgorithmError(f"algorithm {text!r}", "the path of a folder with a slash", f"write ./{text}")
    raise AlgorithmError(
        f"algorithm {text!r}", f"one of {', '.join(names())}, or the path of a folder", "correct the name"
    )


def _package(folder: Path) -> str:
    """Make a folder outside of packages importable. Return the name of its package."""
    name = f"railweave_algorithm_{hashlib.sha256(bytes(folder)).hexdigest()[:16]}"
    if name not in sys.modules:
        spec = importlib.machinery.ModuleSpec(name, None, is_package=True)
        spec.submodule_search_locations = [str(folder)]
        sys.modules[name] = importlib.util.module_from_spec(spec)
    return name
