# SPDX-License-Identifier: Apache-2.0
"""The ledger of decisions while calls go on, and its table in `railweave why`."""

from __future__ import annotations

from dataclasses import dataclass, field

from railweave.commands.why import _decisions
from railweave.hosts.decisions import Ledger, Reason, Verdict
from railweave.v1 import controller_pb2 as pb


@dataclass(frozen=True)
class Reading(Verdict):
    """A verdict that makes a call of a new class while it is read, as another thread could."""

    ledger: Ledger | None = field(default=None, compare=False)

    def __getattribute__(self, name: str) -> object:
        if name == "text" and (ledger := object.__getattribute__(self, "ledger")) is not None:
            ledger.tally("all_reduce", "float32", "sum", 1 << 20, {"tcp": Verdict(None)}).calls += 1
        return object.__getattribute__(self, name)


def test_decisions_are_read_while_calls_of_new_classes_are_made() -> None:
    ledger, verdict = Ledger(), Reading(Reason.OP, "no")
    ledger.tally("all_reduce", "int32", "max", 4, {"ina": verdict}).calls += 1
    object.__setattr__(verdict, "ledger", ledger)
    assert [(decision.rail, decision.calls) for decision in ledger.decisions()] == [("ina", 1)]
    assert [decision.rail for decision in ledger.decisions()] == ["ina", "tcp"]


def test_a_rank_with_several_equal_decisions_is_named_once() -> None:
    used = pb.Decision(collective="all_reduce", dtype="float32", op="sum", rail="ina", used=True)
    report = pb.JobReport(
        size=3, ranks=[pb.RankReport(rank=2, decisions=[used]), pb.RankReport(rank=0, decisions=[used, used])]
    )
    assert list(_decisions(report).columns[-1].cells) == ["0,2"]
    report.ranks.append(pb.RankReport(rank=1, decisions=[used]))
    assert list(_decisions(report).columns[-1].cells) == ["all"]
