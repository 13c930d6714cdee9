# SPDX-License-Identifier: Apache-2.0
"""One loaded program with its tables and state: the interface to the engine."""

from __future__ import annotations

from railweave._native.engine import InvalidPlan
from railweave.switch.errors import InvalidProgram
from railweave.switch.lowering import lower
from railweave.switch.pipeline.arrays import Arrays
from railweave.switch.pipeline.language import Language, Log
from railweave.switch.pipeline.matches import Match, exact, lpm, optional, range_, ternary
from railweave.switch.pipeline.notices import Notices
from railweave.switch.pipeline.replication import Replication
from railweave.switch.pipeline.tracing import TraceBusy, Tracing
from railweave.switch.pipeline.values import (
    CloneSession,
    CounterValue,
    Digest,
    Entry,
    Group,
    GroupMember,
    Member,
    MeterConfig,
    Replica,
    Target,
    WeightedAction,
)

__all__ = [
    "CloneSession",
    "CounterValue",
    "Digest",
    "Entry",
    "Group",
    "GroupMember",
    "Log",
    "Match",
    "Member",
    "MeterConfig",
    "Pipeline",
    "Replica",
    "Target",
    "TraceBusy",
    "WeightedAction",
    "exact",
    "lpm",
    "optional",
    "range_",
    "ternary",
]


class Pipeline(Arrays, Replication, Notices, Language, Tracing):
    """A program in a switch. All methods may be called from any thread, also while packets flow."""

    @classmethod
    def load(cls, bmv2_json: bytes) -> Pipeline:
        """Lower a BMv2 JSON program and load it; raises UnsupportedConstruct or InvalidProgram."""
        try:
            pipeline = cls(*lower(bmv2_json))
        except InvalidPlan as error:  # within the lowering's limits, beyond the engine's
            raise InvalidProgram(f"the program is too large for the engine: {error}") from None
        pipeline.source = bmv2_json
        return pipeline
