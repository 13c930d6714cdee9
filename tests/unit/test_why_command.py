# SPDX-License-Identifier: Apache-2.0
"""The table of decisions of `railweave why`."""

from __future__ import annotations

from railweave.commands.why import _decisions
from railweave.v1 import controller_pb2 as pb


def test_a_rank_with_several_equal_decisions_is_named_once() -> None:
    used = pb.Decision(collective="all_reduce", dtype="float32", op="sum", rail="ina", used=True)
    report = pb.JobReport(
        size=3, ranks=[pb.RankReport(rank=2, decisions=[used]), pb.RankReport(rank=0, decisions=[used, used])]
    )
    assert list(_decisions(report).columns[-1].cells) == ["0,2"]
    report.ranks.append(pb.RankReport(rank=1, decisions=[used]))
    assert list(_decisions(report).columns[-1].cells) == ["all"]
