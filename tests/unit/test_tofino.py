# SPDX-License-Identifier: Apache-2.0
"""What is recorded of the program for Tofino: of these sources, and within the chip."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from railweave.p4src.artifacts import SOURCES_RECORD
from railweave.p4src.compile import CompileError
from railweave.p4src.tofino import PROFILES, TNA_ROOT, Profile, compile_profile, missing_tools, sources

STAGES = {"tofino": 12, "tofino2": 20}
ALUS_PER_STAGE = 4


def report(profile: Profile) -> Any:
    return json.loads(profile.report().read_text())


def test_the_reports_are_of_these_sources() -> None:
    assert (TNA_ROOT / SOURCES_RECORD).read_text() == sources(), (
        "the P4 sources have changed: `python -m railweave.p4src.tofino`"
    )


@pytest.mark.parametrize("profile", PROFILES, ids=str)
def test_every_register_has_one_stateful_alu(profile: Profile) -> None:
    used = Counter(name for stage in report(profile)["stages"] for name in stage["stateful_alus"])
    slots = [f"slot_{name}" for name in ("tag", "seen", "mark", "owner", "flags")]
    assert used == Counter([*slots, *(f"lane_{n:02X}" for n in range(profile.lanes))])


@pytest.mark.parametrize("profile", PROFILES, ids=str)
def test_it_fits(profile: Profile) -> None:
    stages = report(profile)["stages"]
    assert stages[-1]["stage"] < STAGES[profile.chip]
    assert all(len(stage["stateful_alus"]) <= ALUS_PER_STAGE for stage in stages)


@pytest.mark.skipif(bool(missing_tools()), reason=f"not on PATH: {missing_tools()}")
@pytest.mark.parametrize("profile", PROFILES, ids=str)
def test_the_same_compiler_reports_the_same(profile: Profile, tmp_path: Path) -> None:
    assert compile_profile(profile, tmp_path).read_text() == profile.report().read_text()


def test_without_the_tools_the_refusal_names_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CompileError, match="p4c-barefoot, bfas is not on PATH"):
        compile_profile(PROFILES[0], tmp_path)
