# SPDX-License-Identifier: Apache-2.0
"""Compile an algorithm's program for each number of lanes, and tell whether it has changed since then."""

from __future__ import annotations

import contextlib
import re
import shlex
from pathlib import Path

from railweave.p4src.artifacts import Artifact, hash_line
from railweave.p4src.compile import compile_program, compiler_version
from railweave.p4src.config import SOURCE_ROOT
from railweave.sdk.errors import AlgorithmError
from railweave.sdk.library import Algorithm
from railweave.sdk.manifest import PORTS, Manifest

RECORD = "sources.sha256"
"""File in `build`: the compiler, and the hashes of sources and programs."""

_INCLUDE = re.compile(r'^#include "(.+)"', re.MULTILINE)


def compile_algorithm(algorithm: Algorithm) -> list[Artifact]:
    """Compile into the folder `build`. Raises CompileError."""
    manifest, build, defines = algorithm.manifest, algorithm.folder / "build", _defines(algorithm.manifest)
    made = []
    for lanes in manifest.lanes:
        folder = build / f"lanes{lanes}"
        paths = folder / "main.json", folder / "main.p4info.txtpb"
        options = (f"-I{SOURCE_ROOT}", f"-DLANES={lanes}", *defines)
        compile_program(manifest.program, *paths, *options, root=algorithm.folder)
        made.append(algorithm.artifact(lanes))
    (build / RECORD).write_text(f"# {compiler_version()}\n{hashes(algorithm)}", encoding="utf-8")
    return made


def require_current(algorithm: Algorithm) -> None:
    """Raise AlgorithmError if the compiled programs are older than the sources."""
    if not is_current(algorithm):
        raise AlgorithmError(
            f"the compiled program of {algorithm.name} is older than its sources",
            "the program of these sources and of these numbers in algorithm.toml",
            f"compile it: railweave algorithm compile {shlex.quote(str(algorithm.folder))}",
        )


def is_current(algorithm: Algorithm) -> bool:
    """Return whether the compiled programs are those of the sources and of the manifest's numbers."""
    record = algorithm.folder / "build" / RECORD
    if not record.is_file():
        return False
    with contextlib.suppress(FileNotFoundError):  # an include that is missing
        return record.read_text(encoding="utf-8").partition("\n")[2] == hashes(algorithm)
    return False


def hashes(algorithm: Algorithm) -> str:
    """Return the manifest's numbers as a comment, and a line per source and program as in `sha256sum`.

    Sources of railweave come first.
    """
    shared: list[Path] = []
    own: list[Path] = []
    for path in sorted(_sources(algorithm)):
        of_railweave = path.is_relative_to(SOURCE_ROOT)
        (shared if of_railweave else own).append(path)
    artifacts = [algorithm.artifact(lanes) for lanes in algorithm.manifest.lanes]
    built = [path for each in artifacts for path in (each.json_path, each.p4info_path)]
    lines = [hash_line(path, path.relative_to(SOURCE_ROOT).as_posix()) for path in shared]
    lines += [hash_line(path, path.relative_to(algorithm.folder).as_posix()) for path in (*own, *built)]
    return f"# {' '.join(_defines(algorithm.manifest))}\n{''.join(lines)}"


def _defines(manifest: Manifest) -> list[str]:
    numbers = {"PORT": manifest.udp_port, "PORTS": PORTS, "HEADER_BYTES": manifest.header_bytes}
    return [f"-DALGORITHM_{name}={value}" for name, value in numbers.items()]


def _sources(algorithm: Algorithm) -> set[Path]:
    """Return the program and all that it includes. p4c looks in the algorithm's folder first."""
    folder = algorithm.folder
    found, new = set[Path](), {folder / algorithm.manifest.program}
    while new:
        found |= new
        names = {name for path in new for name in _INCLUDE.findall(path.read_text(encoding="utf-8"))}
        roots = {name: folder if (folder / name).is_file() else SOURCE_ROOT for name in names}
        new = {root / name for name, root in roots.items()} - found
    return found
