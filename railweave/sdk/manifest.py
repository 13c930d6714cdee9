# SPDX-License-Identifier: Apache-2.0
"""`algorithm.toml`: the name, the abilities and the ports of an algorithm."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

from railweave.errors import of_file
from railweave.p4src.config import CONFIG
from railweave.sdk.errors import AlgorithmError
from railweave.topologies.errors import TopologyError
from railweave.topologies.values import build

FILE = "algorithm.toml"
JOBS = 16  # most jobs of an algorithm on one plane
PORTS = 2 * JOBS  # UDP ports of an algorithm: one for the ranks of each job, and one for its server
DTYPES = ("float32", "int32")
ACCURACIES = ("exact", "bounded", "lossy")
NETWORKS = ("planes", "racks", "leaf-spine", "fat-tree")
RESERVED = {CONFIG["INA_UDP_PORT"]: "the in-network rail", CONFIG["ROCE_UDP_PORT"]: "RoCEv2"}


@dataclass(frozen=True)
class Manifest:
    """The keys of `algorithm.toml`."""

    name: str
    summary: str  # one sentence
    udp_port: int  # the first of PORTS ports, a multiple of PORTS
    lanes: tuple[int, ...]  # numbers per packet; `build` has a program for each. The first is the default
    header_bytes: int  # of the algorithm's header, between the UDP header and the lanes
    paper: str = ""
    program: str = "main.p4"
    dtypes: tuple[str, ...] = ("int32",)
    operations: tuple[str, ...] = ("sum",)
    accuracy: str = "exact"  # of float32; Endpoint.error_bound states the error of bounded and of lossy ones
    networks: tuple[str, ...] = ("planes",)  # topologies for which `control.wanted` gives a state
    survives: tuple[str, ...] = ()  # further faults that its calls survive: "restart" of a switch
    options: tuple[str, ...] = ()  # names of the options that `control.wanted` and endpoints take
    counters: tuple[str, ...] = ()  # tables whose entries count packets, for the record of a run

    @classmethod
    def load(cls, folder: Path) -> Manifest:
        """Read a folder's manifest. Raise AlgorithmError, which names the file and the key."""
        path = folder / FILE
        try:
            with path.open("rb") as file:
                manifest = build(cls, tomllib.load(file), "algorithm")
            manifest.check(folder)
        except (OSError, ValueError, TopologyError, AlgorithmError) as error:
            raise of_file(AlgorithmError, path, error, "an algorithm's manifest in TOML") from None
        return manifest

    def check(self, folder: Path) -> None:
        """Raise AlgorithmError for a value that cannot be right."""
        self._require(self.name == folder.name, "name", self.name, f"{folder.name!r}, the folder's name")
        self._require(self.name.isidentifier(), "name", self.name, "a name as of a Python module")
        least = 1024
        ports = self.udp_port % PORTS == 0 and least <= self.udp_port <= (1 << 16) - PORTS
        self._require(ports, "udp_port", self.udp_port, f"a multiple of {PORTS} from {least} on")
        for port, owner in RESERVED.items():
            own = self.udp_port <= port < self.udp_port + PORTS
            self._require(not own, "udp_port", self.udp_port, f"a range without {port}, the port of {owner}")
        self._require(bool(self.lanes) and min(self.lanes) > 0, "lanes", self.lanes, "one number or more")
        self._require(self.header_bytes >= 0, "header_bytes", self.header_bytes, "0 or more")
        self._require((folder / self.program).is_file(), "program", self.program, "a file of the folder")
        for name, values, known in (
            ("dtypes", self.dtypes, DTYPES),
            ("networks", self.networks, NETWORKS),
            ("survives", self.survives, ("restart",)),
            ("accuracy", (self.accuracy,), ACCURACIES),
            ("operations", self.operations, self.operations),
        ):
            optional = name == "survives"
            self._require(optional or bool(values), name, values, "one value or more")
            for value in values:
                self._require(value in known, name, value, f"one of {', '.join(known)}")

    @staticmethod
    def _require(holds: bool, key: str, value: object, expected: str) -> None:
        if not holds:
            raise AlgorithmError(f"{key} is {value!r}", expected, f"correct the key {key}")

    def rank_port(self, job: int) -> int:
        """Return the UDP port of a job's ranks. Jobs count from 0."""
        return self.udp_port + job

    def server_port(self, job: int) -> int:
        """Return the UDP port of a job's server."""
        return self.udp_port + JOBS + job
