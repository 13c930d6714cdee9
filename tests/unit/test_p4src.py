# SPDX-License-Identifier: Apache-2.0
"""The compiled programs match the sources, and all code reads the same numbers."""

import json
import re
import shutil
from pathlib import Path

import pytest

from railweave.p4src.artifacts import (
    AGGREGATION,
    BUILD_ROOT,
    NETREDUCE,
    PROFILES,
    PROGRAMS,
    SOURCES_RECORD,
    TNA,
    artifact,
    lanes_for,
    mtu_for,
    program_hashes,
    source_hashes,
)
from railweave.p4src.compile import COMPILER, CompileError, compile_all, compile_program, compiler_version
from railweave.p4src.config import CONFIG, SOURCE_ROOT, read_config

RECORD = (BUILD_ROOT / SOURCES_RECORD).read_text()


def test_the_compiled_programs_are_those_that_were_made_of_these_sources() -> None:
    recorded = [line for line in RECORD.splitlines() if not line.startswith("#")]
    now = (source_hashes(TNA) + program_hashes()).splitlines()
    assert recorded == now, "the P4 sources or the compiled programs have changed: run `make p4`"


def test_every_line_of_config_that_defines_a_number_is_read() -> None:
    text = (SOURCE_ROOT / "common" / "config.p4").read_text()
    defined = set(re.findall(r"^\s*(?:#define|const bit<\d+>) (\w+)", text, re.MULTILINE)) - {
        "RAILWEAVE_CONFIG_P4"
    }
    assert set(CONFIG) == defined


def test_config_reads_sizes_and_typed_constants() -> None:
    assert read_config("#define SLOTS 12  // text\nconst bit<8> OP_MAX = 1;\n// const bit<8> NO = 2;\n") == {
        "SLOTS": 12,
        "OP_MAX": 1,
    }


def test_config_is_consistent() -> None:
    assert CONFIG["SLOTS"] == 1 << CONFIG["SLOT_BITS"]
    of_slots = ("NONFINITE", "OVERFLOW", "MISMATCH", "OWNER", "LAST")
    assert CONFIG["SLOT_FLAGS"] == sum(CONFIG[f"FLAG_{name}"] for name in of_slots)
    assert CONFIG["MAX_CHILDREN"] < 32  # bit 31 of the bitmap has another meaning


def lane_names(lanes: int) -> list[str]:
    digits = len(f"{lanes - 1:02X}")
    return [f"lane_{n:0{digits}X}" for n in range(lanes)]


IN_ORDER = {
    AGGREGATION: {
        "Lanes.read": ["read"],
        "Lanes.write": ["write"],
        "Lanes.add": ["read", "write"],
        "Lanes.max": ["read", "write"],
    },
    NETREDUCE: {"Sums.read": ["read"], "Sums.write": ["write"], "Sums.add": ["read", "write"]},
}


@pytest.mark.parametrize(("name", "lanes"), [(name, lanes) for name in PROFILES for lanes in PROFILES[name]])
def test_a_profile_has_its_lanes_as_fields_and_as_registers(lanes: int, name: str) -> None:
    """A packet touches each lane's register once and in order, as hardware stages in a pipeline require.

    A read and then a write of one cell is one access.
    """
    program = json.loads(artifact(lanes, program=name).json_path.read_text())
    names = lane_names(lanes)
    header = next(h for h in program["header_types"] if h["name"] == "lanes_h")
    assert [field[:2] for field in header["fields"]] == [[name, 32] for name in names]
    registers = {r["name"]: (r["size"], r["bitwidth"]) for r in program["register_arrays"]}
    assert [registers[name] for name in names] == [(CONFIG["SLOTS"], 32)] * lanes
    for action, primitives in IN_ORDER.get(name, {}).items():
        body = next(a for a in program["actions"] if a["name"].endswith(f".{action}"))["primitives"]
        touched = [
            (step["op"], next(p["value"] for p in step["parameters"] if p["type"] == "register_array"))
            for step in body
            if step["op"].startswith("register_")
        ]
        assert touched == [(f"register_{op}", lane) for lane in names for op in primitives]


@pytest.mark.parametrize("lanes", PROFILES[AGGREGATION])
def test_the_compiler_made_no_copies_of_headers(lanes: int) -> None:
    """An action with a struct as a parameter would copy the whole struct in and out, with all lanes."""
    text = artifact(lanes).json_path.read_text()
    names = {header["name"] for header in json.loads(text)["headers"]}
    assert names == {"ethernet", "arp", "ipv4", "icmp", "udp", "ina", "lanes", "scalars", "standard_metadata"}
    assert f"{mtu_for(lanes):04x}{mtu_for(lanes) - 20:04x}" in text  # the parser's packets have this MTU


@pytest.mark.parametrize(("mtu", "lanes"), [(1500, 256), (8999, 256), (9000, 1024), (65535, 1024)])
def test_the_lanes_suit_the_mtu(mtu: int, lanes: int) -> None:
    assert lanes_for(mtu) == lanes
    assert mtu_for(lanes) <= mtu


def test_nothing_of_the_machine_is_in_the_compiled_programs() -> None:
    for path in [p for p in BUILD_ROOT.rglob("*") if p.is_file()]:
        assert not re.search(r'"/\w|\.\./|/home/|/tmp/|/usr/', path.read_text()), path


def test_an_unknown_profile_is_refused_with_those_that_exist() -> None:
    with pytest.raises(ValueError, match=r"railweave for 16 lanes: expected one of 32, 64, 256, 1024 lanes"):
        artifact(16)


@pytest.mark.skipif(shutil.which(COMPILER) is None, reason=f"{COMPILER} is not installed")
def test_the_same_compiler_makes_the_same_program(tmp_path: Path) -> None:
    """Only the smallest program is compiled. The record has the hashes of all programs."""
    if not RECORD.startswith(f"# {compiler_version()}\n"):
        pytest.skip(f"{COMPILER} is of another version than the compiled programs")
    committed = artifact(min(PROFILES[AGGREGATION]))
    json_path, p4info_path = (tmp_path / each.name for each in (committed.json_path, committed.p4info_path))
    compile_program(PROGRAMS[AGGREGATION], json_path, p4info_path, f"-DLANES={committed.lanes}")
    assert json_path.read_bytes() == committed.json_path.read_bytes()
    assert p4info_path.read_bytes() == committed.p4info_path.read_bytes()


def test_without_a_compiler_the_refusal_names_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CompileError, match="p4c-bm2-ss is not on PATH: expected p4c"):
        compile_all(tmp_path)
