# SPDX-License-Identifier: Apache-2.0
"""The compiled programs, and whether they are those of the sources beside them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from railweave.errors import explain
from railweave.p4src.config import CONFIG, SOURCE_ROOT

BUILD_ROOT: Final = SOURCE_ROOT / "build"
SOURCES_RECORD: Final = "sources.sha256"
"""File beside the compiled programs: their compiler, and the hashes of sources and programs (sha256sum)."""

AGGREGATION: Final = "railweave"
NETREDUCE: Final = "netreduce"
TNA: Final = "tna"
"""Folder of the program for Tofino, which p4c-bm2-ss does not compile (`tofino.py`)."""
ALGORITHM: Final = "algorithm"
"""Folder of the frame around users' algorithms, which `railweave.sdk.compile` compiles."""
PROGRAMS: Final = {AGGREGATION: "v1model/main.p4", NETREDUCE: "netreduce/main.p4"}
"""The programs, and the file that is each one's table of contents."""

JUMBO_MTU: Final = 9000
JUMBO_LANES: Final = 1024
ROCE_LANES: Final = 256
"""Lanes per packet of netreduce rails: the hosts' path MTU is 1,024 bytes."""
PROFILES: Final = {AGGREGATION: (JUMBO_LANES, 256, 64, 32), NETREDUCE: (256, 64)}
"""Lanes per packet for which each program is compiled. 32 are for planes with a Tofino that has no more."""

IPV4_UDP, LANE_BYTES = 20 + 8, 4


@dataclass(frozen=True)
class Artifact:
    """One compiled program: what a v1model target runs, and what its controller reads."""

    program: str
    lanes: int
    json_path: Path
    p4info_path: Path

    @property
    def device_config(self) -> Path:
        """What a controller sends to a v1model target."""
        return self.json_path


def artifact(lanes: int, root: Path = BUILD_ROOT, program: str = AGGREGATION) -> Artifact:
    """Return a program compiled for that many lanes per packet; ValueError names the profiles there are."""
    if lanes not in PROFILES[program]:
        found = ", ".join(map(str, sorted(PROFILES[program])))
        raise ValueError(
            explain(
                f"{program} for {lanes} lanes",
                f"one of {found} lanes",
                "take one of these, or compile it: make p4",
            )
        )
    folder = root / "bmv2" / f"lanes{lanes}"
    p4info = "p4info.txtpb" if program == AGGREGATION else f"{program}.p4info.txtpb"
    return Artifact(program, lanes, folder / f"{program}.json", folder / p4info)


def lanes_for(mtu: int) -> int:
    """Return the lanes of the aggregation program for a plane whose links all have this MTU or more."""
    return JUMBO_LANES if mtu >= JUMBO_MTU else CONFIG["LANES"]


def mtu_for(lanes: int) -> int:
    """Return the least MTU of a link that carries the aggregation program's packets of so many lanes."""
    return IPV4_UDP + CONFIG["INA_HEADER_BYTES"] + LANE_BYTES * lanes


def source_hashes(*without: str, root: Path = SOURCE_ROOT) -> str:
    """Return a line per P4 source outside these folders of `root`, as `sha256sum` writes and checks them."""
    sources = sorted(
        path
        for path in root.rglob("*.p4")
        if path.relative_to(root).parts[0] not in ("build", ALGORITHM, *without)
    )
    return "".join(hash_line(path, path.relative_to(root).as_posix()) for path in sources)


def program_hashes(root: Path = BUILD_ROOT) -> str:
    """Return such a line per file of the compiled programs in a folder."""
    built = [artifact(lanes, root, name) for name, profiles in PROFILES.items() for lanes in profiles]
    return built_hashes([path for each in built for path in (each.json_path, each.p4info_path)], root)


def built_hashes(files: Iterable[Path], root: Path) -> str:
    """Return such a line for each of these files in a folder of compiled programs."""
    return "".join(hash_line(path, f"build/{path.relative_to(root).as_posix()}") for path in sorted(files))


def hash_line(path: Path, name: str) -> str:
    """Return the line of one file, as `sha256sum` writes and checks it."""
    return f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {name}\n"
