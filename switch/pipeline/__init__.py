# SPDX-License-Identifier: Apache-2.0
"""One loaded program with its tables and state: the interface to the engine."""

from __future__ import annotations

from railweave.switch.pipeline.matches import exact, lpm, optional, range_, ternary
from railweave.switch.pipeline.pipeline import Log, Pipeline
from railweave.switch.pipeline.tables import Table
from railweave.switch.pipeline.traces import TraceBusy
from railweave.switch.pipeline.values import (
    CounterValue,
    Digest,
    Entry,
    Group,
    GroupMember,
    MeterConfig,
    Opaque,
    Replica,
    Target,
    WeightedAction,
)
from railweave.switch.program import Match

__all__ = [
    "CounterValue",
    "Digest",
    "Entry",
    "Group",
    "GroupMember",
    "Log",
    "Match",
    "MeterConfig",
    "Opaque",
    "Pipeline",
    "Replica",
    "Table",
    "Target",
    "TraceBusy",
    "WeightedAction",
    "exact",
    "lpm",
    "optional",
    "range_",
    "ternary",
]
