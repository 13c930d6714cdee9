# SPDX-License-Identifier: Apache-2.0
"""The options and results of the failover experiment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from railweave.experiments.failover.figures import Curve, Figures, Window
from railweave.topologies.lab.options import LabOptions
from railweave.topologies.model import Topology

COLLECTIVES = ("all_reduce", "all_gather")
WENT_ON, NOT_BACK, HUNG = "went on", "not readmitted", "hung"
KEPT, EXCLUDED, PEER_LOST = "all rails kept", "a rail was excluded", "PeerLost"


@dataclass(frozen=True)
class FailoverOptions:
    """One experiment."""

    topology: Topology
    lab: LabOptions
    trials: int = 5  # of each fault and rail
    seed: int = 1
    faults: Sequence[str] = ()  # by name; empty: all
    rails: Sequence[str] = ()  # that fail, by plane; empty: each
    collective: str = "all_reduce"  # one of COLLECTIVES
    bytes: int = 256 << 10  # of each tensor
    dtype: str = "int32"
    compute_s: float = 5.0  # duration of a rank's computation
    outage_s: float = 0.8  # from a fault to its repair
    restarts: int = 10  # of the controller in one trial
    deadline_s: float = 20.0  # for progress, errors and readmission


@dataclass(frozen=True)
class Trial:
    """One fault and its outcome."""

    fault: str
    rail: str
    number: int
    where: str = ""
    outcome: str = HUNG
    expected: bool = False  # the outcome is the expected one
    errors: tuple[str, ...] = ()  # unexpected errors that ranks raised
    wrong: int = 0  # elements
    inject_s: float = 0.0  # time that the injection took
    window: Window | None = None  # of a fault of a rail, as the next two
    figures: Figures | None = None
    curve: Curve | None = None
    failures: int = 0  # how often the ranks excluded the rail
    others: tuple[str, ...] = ()  # rails that were excluded although they had no fault
    error_s: float | None = None  # from a rank's death until all other ranks had an error
    formed_s: float | None = None  # from the restart of the rank until all ranks had joined again

    @property
    def ok(self) -> bool:
        """Whether the fault ended as expected, without an error or a wrong number."""
        return self.expected and not self.errors and not self.wrong
