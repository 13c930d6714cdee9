# SPDX-License-Identifier: Apache-2.0
"""A reader can read the ledger of decisions while calls go on."""

from __future__ import annotations

from dataclasses import dataclass, field

from railweave.hosts.decisions import Ledger, Reason, Verdict


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
