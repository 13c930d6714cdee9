# SPDX-License-Identifier: Apache-2.0
"""Compiles and assembles the program for Tofino: `python -m railweave.p4src.tofino [FOLDER]`.

It needs p4c-barefoot and bfas on PATH. Kept here are the P4Info and which resources of the chip each profile
takes, as the assembler reports them; what a switch loads goes into a folder per profile in FOLDER.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from railweave.p4src.artifacts import BUILD_ROOT, PROGRAMS, SOURCES_RECORD, source_hashes
from railweave.p4src.compile import CompileError
from railweave.p4src.config import SOURCE_ROOT
from railweave.p4src.tofino_program import BFRT, CONTEXT, P4INFO, binary

COMPILER: Final = "p4c-barefoot"
ASSEMBLER: Final = "bfas"
TNA_ROOT: Final = BUILD_ROOT / "tna"
CHIPS: Final = {
    "tofino": ["--arch", "tna", "-D__TARGET_TOFINO__=1"],
    "tofino2": ["--arch", "t2na", "-D__TARGET_TOFINO__=2", "--no-clot"],
}
"""Options per chip. The assembler does not take the CLOTs (bytes that pass beside the stages) of p4c 9.13."""


@dataclass(frozen=True)
class Profile:
    """One build of the program: for which chip, with how many lanes per packet."""

    chip: str
    lanes: int

    @property
    def name(self) -> str:
        """Of its files and its folder."""
        return f"{self.chip}-lanes{self.lanes}"

    def report(self, root: Path = TNA_ROOT) -> Path:
        """Where its resources are recorded."""
        return root / f"{self.name}.json"

    def p4info(self, root: Path = TNA_ROOT) -> Path:
        """Where its P4Info is recorded."""
        return root / f"{self.name}.p4info.txtpb"


PROFILES: Final = (Profile("tofino", 32), Profile("tofino2", 32), Profile("tofino2", 64))


def compile_profile(profile: Profile, root: Path = TNA_ROOT, program: Path | None = None) -> Path:
    """Compile and assemble one profile and record P4Info and resources; CompileError is in the tool's words.

    What a switch loads is put into the folder `program`, if there is one.
    """
    if absent := missing_tools():
        raise CompileError(f"{absent} is not on PATH", "p4c for Tofino", "build p4c with ENABLE_TOFINO")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        options = ["--target", profile.chip, *CHIPS[profile.chip], "--std", "p4-16", "--Wdisable", "-I."]
        options += ["--p4runtime-files", str(folder / P4INFO), "--bf-rt-schema", str(folder / BFRT)]
        options += ["--p4runtime-force-std-externs", f"-DLANES={profile.lanes}"]
        _run([COMPILER, *options, "-o", temporary, "tna/main.p4"], SOURCE_ROOT)
        pipe = (folder / CONTEXT).parent
        (pipe / "logs").mkdir(exist_ok=True)
        _run([ASSEMBLER, "--target", profile.chip, "-o", ".", "main.bfa"], pipe)
        context = json.loads((folder / CONTEXT).read_text(encoding="utf-8"))
        root.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(folder / P4INFO, profile.p4info(root))
        if program:
            (program / CONTEXT).parent.mkdir(parents=True, exist_ok=True)
            for name in (P4INFO, BFRT, CONTEXT, binary(profile.chip)):
                shutil.copyfile(folder / name, program / name)
    path = profile.report(root)
    path.write_text(_lines(resources(context)), encoding="utf-8")
    return path


def missing_tools() -> str:
    """Return which of the tools are not on PATH."""
    return ", ".join(tool for tool in (COMPILER, ASSEMBLER) if shutil.which(tool) is None)


def resources(context: dict[str, Any]) -> dict[str, Any]:
    """Take tables, ALUs and memories per stage, and PHV containers, out of the assembler's report."""
    stages: dict[int, dict[str, Any]] = defaultdict(
        lambda: {"ingress": [], "egress": [], "stateful_alus": [], "sram_blocks": 0, "tcam_blocks": 0}
    )
    for table in context["tables"]:
        for part in table.get("stage_tables", table.get("match_attributes", {}).get("stage_tables", [])):
            if part["stage_number"] < 0:
                continue  # in the parser
            stage = stages[part["stage_number"]]
            if table["table_type"] == "match":
                stage[table["direction"]].append(table["name"])
            elif table["table_type"] == "stateful":
                stage["stateful_alus"].append(table["name"])
            for kind in ("sram", "tcam"):
                stage[f"{kind}_blocks"] += _blocks(part, kind)
    containers: dict[int, set[int]] = defaultdict(set)
    for allocation in context["phv_allocation"]:
        for used in allocation["ingress"] + allocation["egress"]:
            if used["container_type"] == "normal":
                containers[used["word_bit_width"]].add(used["phv_number"])
    return {
        "compiler": context["compiler_version"].split()[0],
        "phv_containers": {str(width): len(numbers) for width, numbers in sorted(containers.items())},
        "stages": [{"stage": number, **stages[number]} for number in sorted(stages)],
    }


def _blocks(part: dict[str, Any], kind: str) -> int:
    """Count the memories of one kind that a table has in one stage."""
    used: set[int] = set()
    memories = [part.get("memory_resource_allocation")]
    memories += [way["memory_resource_allocation"] for way in part.get("ways", [])]
    for memory in memories:
        if memory and memory["memory_type"] == kind:
            used.update(u for item in memory["memory_units_and_vpns"] for u in item["memory_units"])
            used.update([memory["spare_bank_memory_unit"]] if "spare_bank_memory_unit" in memory else [])
    return len(used)


def _lines(report: dict[str, Any]) -> str:
    """Write JSON with one stage per line."""
    rows = ",\n".join(json.dumps(stage) for stage in report["stages"])
    head = {key: value for key, value in report.items() if key != "stages"}
    return f'{json.dumps(head)[:-1]}, "stages": [\n{rows}\n]}}\n'


def _run(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CompileError(
            f"{' '.join(command)}\n{done.stdout}{done.stderr}",
            "sources that compile",
            "correct the line that it names",
        )


def sources() -> str:
    """Return the hashes of all that the program is made of."""
    return source_hashes(*{Path(main).parts[0] for main in PROGRAMS.values()})


def main() -> int:
    """Compile every profile, and record of which sources; say what fails, in the tool's words."""
    parser = argparse.ArgumentParser(prog="python -m railweave.p4src.tofino", description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, metavar="FOLDER", help="for what a switch loads")
    folder = parser.parse_args().folder
    try:
        for profile in PROFILES:
            program = folder / profile.name if folder else None
            print(compile_profile(profile, program=program).relative_to(SOURCE_ROOT))
    except CompileError as error:
        print(error, file=sys.stderr)
        return 1
    (TNA_ROOT / SOURCES_RECORD).write_text(sources(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
