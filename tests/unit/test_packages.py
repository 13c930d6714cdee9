# SPDX-License-Identifier: Apache-2.0
"""The locked packages meet the requirements of the project, and the switch needs only its own."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS = PROJECT["project"]["optional-dependencies"]
LOCKED = {  # the requirements in requirements.lock
    "": PROJECT["project"]["dependencies"],
    **{extra: EXTRAS[extra] for extra in ("switch", "lab", "figures")},
    **{group: PROJECT["dependency-groups"][group] for group in ("build", "test", "lint", "proto")},
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
    subprocess.run([sys.executable, "-c", IMPORT_WITHOUT, *modules], check=True, timeout=60)
