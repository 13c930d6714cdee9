# SPDX-License-Identifier: Apache-2.0
"""The recorded results for Tofino come from these sources, and the program fits the chip."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path

import pytest
from bf_pipeline_config import BfPipelineConfig

from railweave.p4src.artifacts import SOURCES_RECORD
from railweave.p4src.compile import CompileError
from railweave.p4src.tofino import PROFILES, TNA_ROOT, Profile, compile_profile, missing_tools, sources
from railweave.p4src.tofino_program import load

STAGES = {"tofino": 12, "tofino2": 20}
ALUS_PER_STAGE = 4


def test_the_reports_are_of_these_sources() -> None:
    assert (TNA_ROOT / SOURCES_RECORD).read_text() == sources(), (
        "the P4 sources have changed: `python -m railweave.p4src.tofino`"
    )


@pytest.mark.parametrize("profile", PROFILES, ids=str)
def test_it_fits_with_a_stateful_alu_per_register(profile: Profile) -> None:
    stages = json.loads(profile.report().read_text())["stages"]
    assert stages[-1]["stage"] < STAGES[profile.chip]
    assert all(len(stage["stateful_alus"]) <= ALUS_PER_STAGE for stage in stages)
    used = Counter(name for stage in stages for name in stage["stateful_alus"])
    slots = [f"slot_{name}" for name in ("tag", "seen", "mark", "owner", "flags")]
    lanes = [f"{n:02X}" for n in range(profile.lanes)]
    if profile.lanes == 64:
        lanes = [f"{first}_{second}" for first, second in zip(lanes[::2], lanes[1::2], strict=True)]
    assert used == Counter([*slots, *(f"lane_{name}" for name in lanes)])


@pytest.mark.skipif(bool(missing_tools()), reason=f"not on PATH: {missing_tools()}")
@pytest.mark.parametrize("profile", PROFILES, ids=str)
def test_the_same_compiler_reports_the_same(profile: Profile, tmp_path: Path) -> None:
    assert compile_profile(profile, tmp_path).read_text() == profile.report().read_text()
    assert profile.p4info(tmp_path).read_text() == profile.p4info().read_text()


def compiled(folder: Path, *images: str) -> Path:
    """Make a folder like the compiler's output. The files' sizes need one, two and three bytes as varints."""
    (folder / "pipe").mkdir()
    for name, size in (("p4info.txtpb", 1), ("bfrt.json", 127), ("pipe/context.json", 20_000)):
        (folder / name).write_bytes(b"x" * size)
    for image in images:
        (folder / image).write_bytes(b"\0" * 128)
    return folder


def test_the_device_config_is_stratums_message(tmp_path: Path) -> None:
    program = load(compiled(tmp_path, "pipe/tofino2.bin"))
    config = BfPipelineConfig.FromString(program.device_config)
    (profile,) = config.profiles
    assert (config.p4_name, config.bfruntime_info) == ("railweave", b"x" * 127)
    assert (profile.profile_name, profile.context, profile.binary) == ("pipe", b"x" * 20_000, b"\0" * 128)
    assert list(profile.pipe_scope) == [0, 1, 2, 3]
    assert config.SerializeToString(deterministic=True) == program.device_config
    assert program.p4info_path == tmp_path / "p4info.txtpb"


@pytest.mark.parametrize("profile", PROFILES, ids=str)
def test_its_lanes_are_those_of_its_p4info(tmp_path: Path, profile: Profile) -> None:
    folder = compiled(tmp_path, "pipe/tofino2.bin")
    shutil.copyfile(profile.p4info(), folder / "p4info.txtpb")
    assert load(folder).lanes == profile.lanes


@pytest.mark.parametrize("name", ["p4info.txtpb", "bfrt.json", "pipe/context.json", "pipe/tofino.bin"])
def test_a_missing_file_or_a_second_chips_image_is_named(tmp_path: Path, name: str) -> None:
    folder = compiled(tmp_path, "pipe/tofino.bin")
    (folder / name).unlink()
    with pytest.raises(ValueError, match=f"{tmp_path}: no {name}: expected a compiled program"):
        load(folder)
    for image in ("pipe/tofino.bin", "pipe/tofino2.bin"):
        (folder / image).write_bytes(b"")
    with pytest.raises(ValueError, match=r"pipe/tofino\.bin and pipe/tofino2\.bin: expected one"):
        load(folder)


def test_without_the_tools_the_refusal_names_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CompileError, match="p4c-barefoot, bfas is not on PATH"):
        compile_profile(PROFILES[0], tmp_path)
