# SPDX-License-Identifier: Apache-2.0
"""The locked packages meet the project's requirements, the switch needs few, and imports have no circle."""

from __future__ import annotations

import ast
import tomllib
from graphlib import TopologicalSorter
from importlib.metadata import packages_distributions

import pytest
from commands import ROOT, python
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS = PROJECT["project"]["optional-dependencies"]
LOCKED = {  # the requirements in requirements.lock
    "": PROJECT["project"]["dependencies"],
    **{extra: EXTRAS[extra] for extra in ("switch", "lab", "figures")},
    **{group: PROJECT["dependency-groups"][group] for group in ("build", "test", "lint")},
}

IMPORT_WITHOUT = """
import importlib, pkgutil, sys
for name in sys.argv[1:]:
    sys.modules[name] = None  # importing it fails
import railweave.switch
for module in pkgutil.walk_packages(railweave.switch.__path__, "railweave.switch."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
"""


def named(requirements: list[str]) -> set[str]:
    return {canonicalize_name(Requirement(each).name) for each in requirements}


def locked() -> dict[str, str]:
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    pairs = (line.split("==") for line in lines if "==" in line and not line.startswith(("#", " ")))
    return {canonicalize_name(name): version for name, version in pairs}


@pytest.mark.parametrize("group", LOCKED)
def test_the_locked_versions_are_allowed(group: str) -> None:
    versions = locked()
    for requirement in map(Requirement, LOCKED[group]):
        if requirement.name == "railweave":  # another extra
            continue
        version = versions[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version, prereleases=True), f"{requirement}, locked {version}"


def test_the_switch_imports_without_the_packages_of_other_extras() -> None:
    needed = named(LOCKED[""]) | named(EXTRAS["switch"])
    others = (named(EXTRAS["lab"]) | named(EXTRAS["figures"])) - needed - {"railweave"}
    assert {"matplotlib", "mininet", "networkx", "scikit-learn"} <= others
    modules = [
        module
        for module, owners in packages_distributions().items()
        if {canonicalize_name(owner) for owner in owners} <= others
    ]
    assert len(modules) >= len(others)
    python("-c", IMPORT_WITHOUT, *modules)


def test_the_imports_of_the_hosts_have_no_circle() -> None:
    """Late imports and imports for type checks count, too."""
    files = {
        ".".join(("railweave", *path.with_suffix("").parts)).removesuffix(".__init__"): ROOT / path
        for path in (path.relative_to(ROOT) for path in (ROOT / "hosts").rglob("*.py"))
    }
    graph: dict[str, set[str]] = {}
    for module, path in files.items():
        nodes = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)]
        names = {(node.module, f"{node.module}.{alias.name}") for node in nodes for alias in node.names}
        graph[module] = {name if name in files else str(parent) for parent, name in names} & files.keys()
    TopologicalSorter(graph).prepare()
