# SPDX-License-Identifier: Apache-2.0
"""The options and results of the failover experiment."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from railweave.experiments.failover.figures import Figures
from railweave.experiments.failover.kinds import Kind
from railweave.topologies.model import Topology

WENT_ON, NOT_BACK, HUNG = "went on", "not readmitted", "hung"
KEPT, EXCLUDED, PEER_LOST = "all rails kept", "a rail was excluded", "PeerLost"
ANY_RAIL = "-"  # the rail of faults that hit a rank


@dataclass(frozen=True)
class FailoverOptions:
    """One experiment."""

    topology: Topology
    out: Path
    trials: int = 5  # of each fault and rail
    seed: int = 1
    faults: Sequence[str] = ()  # by name; empty: all
    rails: Sequence[str] = ()  # that fail, by plane; empty: each
    collective: str = "all_reduce"  # of the worker's COLLECTIVES
    bytes: int = 256 << 10  # of each tensor
    dtype: str = "int32"
    compute_s: float = 5.0  # a rank computes for so long
    outage_s: float = 0.8  # from a fault to its repair
    restarts: int = 10  # of the controller in one trial
    deadline_s: float = 20.0  # for progress, errors and readmission
    switch_target: str = "embedded"


@dataclass(frozen=True)
class Trial:
    """One fault and its outcome."""

    fault: str
    rail: str
    number: int
    where: str
    outcome: str
    expected: bool  # the outcome is the right one
    errors: tuple[str, ...]  # unexpected errors that ranks raised
    wrong: int  # elements
    inject_s: float  # time that the injection took
    figures: Figures | None  # None for faults of ranks
    failures: int = 0  # how often the ranks excluded the rail
    others: tuple[str, ...] = ()  # rails that were excluded although they had no fault
    error_s: float | None = None  # of a rank's death: until the last of the others had its error
    formed_s: float | None = None  # from the start of a process in its place until all had joined again


@dataclass(frozen=True)
class Case:
    """The trials of one fault and rail from number `first` on."""

    options: FailoverOptions
    name: str
    rail: str
    kind: Kind | None  # None: a rank's
    first: int

    @property
    def folder(self) -> Path:
        """The folder of its logs."""
        name = f"{self.name} {self.rail} {self.first}".replace(f" {ANY_RAIL} ", " ")
        return self.options.out / name.replace(" ", "-")

    def rng(self, number: int) -> random.Random:
        """Return the random generator of a trial."""
        seed = f"{self.options.seed}/{self.name}/{self.rail}/{number}"
        return random.Random(seed)  # noqa: S311 - repeatable, not secret
