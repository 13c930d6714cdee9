# SPDX-License-Identifier: Apache-2.0
"""Compiles every profile of the P4 programs: `python -m railweave.p4src.compile` (p4c-bm2-ss on PATH)."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, NoReturn

from railweave.errors import LACKING, UserError
from railweave.p4src.artifacts import (
    BUILD_ROOT,
    PROFILES,
    PROGRAMS,
    SOURCES_RECORD,
    TNA,
    Artifact,
    artifact,
    program_hashes,
    source_hashes,
)
from railweave.p4src.config import SOURCE_ROOT

COMPILER: Final = "p4c-bm2-ss"


class CompileError(UserError):
    """The compiler is missing, or it refused the sources."""


class CompilerMissing(CompileError):
    """The compiler is not on PATH."""

    status = LACKING


def compile_all(root: Path = BUILD_ROOT) -> list[Artifact]:
    """Compile every profile into a folder and record compiler and sources there; raises CompileError."""
    built = [
        _compile(artifact(lanes, root, program))
        for program, profiles in PROFILES.items()
        for lanes in profiles
    ]
    record = f"# {compiler_version()}\n{source_hashes(TNA)}{program_hashes(root)}"
    (root / SOURCES_RECORD).write_text(record, encoding="utf-8")
    return built


def compiler_version() -> str:
    """Return the compiler's name and version, as it gives them (on its standard error)."""
    return " ".join(_run([COMPILER, "--version"]).split())


def compile_program(
    source: str, json_path: Path, p4info_path: Path, *options: str, root: Path = SOURCE_ROOT
) -> None:
    """Compile one program. Its path is relative to `root`; paths in the output also to this folder.

    Raises CompileError.
    """
    options = ("--std", "p4-16", "--Werror", "--Wdisable=unused", "-I.", *options)
    json_path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        raw = Path(folder) / "raw.json"
        output = ["--p4runtime-files", str(p4info_path.absolute()), "-o", str(raw)]
        _run([COMPILER, *options, *output, source], root)
        program = json.loads(raw.read_text(encoding="utf-8"))
    json_path.write_text(_lines(_shorten(program)), encoding="utf-8")


def _compile(target: Artifact) -> Artifact:
    compile_program(PROGRAMS[target.program], target.json_path, target.p4info_path, f"-DLANES={target.lanes}")
    return target


def _run(command: list[str], root: Path = SOURCE_ROOT) -> str:
    """Run the compiler among the sources: it copies the paths that it is given into what it writes."""
    if shutil.which(COMPILER) is None:
        raise CompilerMissing(
            f"{COMPILER} is not on PATH",
            "p4c, if you change the P4 program; to run it as it is, nothing needs compiling",
            "install p4c (github.com/p4lang/p4c), or run it in the container image p4lang/p4c",
        )
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CompileError(
            f"{' '.join(command)}\n{done.stderr}", "sources that compile", "correct the line that it names"
        )
    return done.stdout + done.stderr


def _shorten(node: Any) -> Any:
    """Keep of p4c's source positions file and line: the text quoted beside them is most of its output."""
    if isinstance(node, list):
        return [_shorten(item) for item in node]
    if not isinstance(node, dict):
        return node
    return {key: _position(value) if key == "source_info" else _shorten(value) for key, value in node.items()}


def _position(info: dict[str, Any]) -> dict[str, Any]:
    name = info["filename"].removeprefix("./").removeprefix(f"{SOURCE_ROOT}/")
    return {"filename": name, "line": info["line"]}


def _lines(program: dict[str, Any]) -> str:
    """Write JSON with one table, action, register … per line, so that changes read as diffs."""
    parts = []
    for key, value in program.items():
        if isinstance(value, list) and value:
            rows = ",\n".join(json.dumps(item, separators=(",", ":")) for item in value)
            parts.append(f"{json.dumps(key)}: [\n{rows}\n]")
        else:
            parts.append(f"{json.dumps(key)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def compile_or_exit(build: Callable[[], Iterable[Artifact] | None]) -> NoReturn:
    """Compile with `build` and print what it wrote. Exit with 1 and the compiler's own words if it fails."""
    try:
        for target in build() or ():
            print(f"{target.json_path.relative_to(SOURCE_ROOT.parent)}  {target.lanes} lanes per packet")
    except CompileError as error:
        sys.exit(str(error))
    sys.exit()


if __name__ == "__main__":
    compile_or_exit(compile_all)
