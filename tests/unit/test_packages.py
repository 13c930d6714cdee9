# SPDX-License-Identifier: Apache-2.0
"""The locked packages meet the requirements of the project."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LOCKED_GROUPS = ("build", "test", "lint", "proto")  # the groups in requirements.lock


def locked() -> dict[str, str]:
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    pairs = (line.split("==") for line in lines if "==" in line and not line.startswith(("#", " ")))
    return {name.lower().replace("_", "-"): version for name, version in pairs}


@pytest.mark.parametrize("group", ["", *LOCKED_GROUPS])
def test_the_locked_versions_are_allowed(group: str) -> None:
    asked = PROJECT["dependency-groups"][group] if group else PROJECT["project"]["dependencies"]
    versions = locked()
    for requirement in map(Requirement, asked):
        version = versions[requirement.name.lower().replace("_", "-")]
        assert requirement.specifier.contains(version, prereleases=True), f"{requirement}, locked {version}"
