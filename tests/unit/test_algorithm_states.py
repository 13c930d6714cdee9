# SPDX-License-Identifier: Apache-2.0
"""States of switches: the check before traffic starts, and their way into the switch of the check."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import finsy as fy
import pytest
from compressed import unpacked

from railweave import sdk
from railweave.controller import wire
from railweave.controller.state import difference
from railweave.errors import parts
from railweave.p4src.artifacts import Artifact
from railweave.sdk.check.network import Switch
from railweave.sdk.states import require_fit
from railweave.topologies.named import named

PROGRAMS = Path(__file__).parents[1] / "dataplane" / "programs"
ATP = sdk.find("atp").artifact(64)
ROUTER = Artifact("router", 1, unpacked(PROGRAMS / "router.json"), unpacked(PROGRAMS / "router.p4info.txtpb"))
PARAMS = {"rank_bit": 1, "all_ranks": 3, "slot_mask": 7}
WORKER: dict[str, Any] = {
    "table": "workers",
    "match": {"ingress_port": 1, "source": 10, "job": 0},
    "action": "worker",
    "params": PARAMS,
}
ACL = {"table": "acl", "match": {"source": (0xA0, 0xF0)}, "action": "drop", "priority": 1}
ROUTE = {
    "table": "routes",
    "match": {"destination": (0x0A000000, 8)},
    "action": "next_hop",
    "params": {"port": 1, "destination": 5},
}


def state(*entries: dict[str, Any]) -> sdk.SwitchState:
    return sdk.SwitchState(frozenset(sdk.entry(**each) for each in entries))


def of(entry: dict[str, Any], **match: Any) -> dict[str, Any]:
    """Return an entry with a changed match. A value of None leaves the field out."""
    changed = entry["match"] | match
    return entry | {"match": {name: value for name, value in changed.items() if value is not None}}


BAD = [
    (ATP, WORKER | {"table": "worker"}, "table 'worker'", "workers"),
    (ATP, of(WORKER, rank=1), "field 'rank'", "ingress_port, source, job"),
    (ATP, of(WORKER, job=None), "no field job", "exact"),
    (ATP, of(WORKER, job=(1, 1)), "field 'job' is (1, 1)", "a number of 16 bits"),
    (ATP, of(WORKER, job="1"), "field 'job' is '1'", "a number"),
    (ATP, of(WORKER, job=1 << 16), "field 'job' is 65536", "16 bits"),
    (ATP, of(WORKER, job=-1), "field 'job' is -1", "16 bits"),
    (ATP, WORKER | {"priority": 1}, "priority 1", "0"),
    (ATP, WORKER | {"priority": -1}, "priority -1", "0"),
    (ATP, WORKER | {"action": "work"}, "action 'work'", "worker"),
    (ATP, WORKER | {"params": {"rank_bit": 1}}, "parameters rank_bit", "slot_mask"),
    (
        ATP,
        WORKER | {"params": PARAMS | {"rank_bit": 1 << 32}},
        "'rank_bit' is 4294967296",
        "32 bits",
    ),
    (ROUTER, ACL | {"priority": 0}, "priority 0", "1 or more"),
    *(
        (ROUTER, of(entry, **{field: value}), f"field {field!r} is {value!r}", expected)
        for entry, field, expected, values in (
            (ACL, "source", "value and mask", (5, (1,), (0, 0), (0x1F, 0xF0), (0, 1 << 48), (1 << 48, 1))),
            (ACL, "type", "least and greatest", ((2, 1), (0, 0xFFFF), (0, 1 << 16), (1, 2, 3))),
            (ACL, "port", "a number of 9 bits", ((1, 1), 512)),
            (ROUTE, "destination", "prefix length", (5, (1, 8), (0, 0), (0, 33), (-1, 8), ("0", 8))),
        )
        for value in values
    ),
]


@pytest.mark.parametrize(("program", "bad", "given", "expected"), BAD)
def test_an_entry_that_does_not_fit_the_program_is_an_error(
    program: Artifact, bad: dict[str, Any], given: str, expected: str
) -> None:
    with pytest.raises(sdk.AlgorithmError) as error:
        require_fit({"s1": state(bad)}, program)
    found = parts(str(error.value))
    assert "switch s1" in found[0]
    assert given in found[0]
    assert expected in found[1]
    assert "control.py" in found[2]


def bridges(count: int) -> list[dict[str, Any]]:
    return [
        {"table": "bridge", "match": {"destination": mac}, "action": "to_port", "params": {"port": 1}}
        for mac in range(count)
    ]


def test_entries_that_fit_are_no_error() -> None:
    acl = of(ACL, source=(0, 1 << 47), type=(0, 0xFFFE), port=511)
    require_fit({"s1": state(WORKER)}, ATP)
    require_fit({"s1": state(ACL, acl, ROUTE, of(ROUTE, destination=(1, 32)), *bridges(8))}, ROUTER)


@pytest.mark.parametrize(
    ("entries", "given"),
    [(bridges(9), "would have 9 entries"), ([ACL, ACL | {"action": "pass"}], "several entries for")],
)
def test_entries_that_cannot_be_in_a_table_together_are_an_error(
    entries: list[dict[str, Any]], given: str
) -> None:
    with pytest.raises(sdk.AlgorithmError, match=given):
        require_fit({"s1": state(*entries)}, ROUTER)


def test_pairs_and_priorities_reach_the_switch_and_come_back() -> None:
    acl = of(ACL, type=(0x800, 0x806), port=3)
    paint = {"action": "paint", "params": {"color": 7}}
    switch = Switch(ROUTER)
    before = state(ACL, acl, ROUTE, of(ROUTE, destination=(0x0A010000, 16)))
    after = state(ACL | paint, ACL | {"priority": 2}, acl, of(ROUTE, destination=(0x0A000000, 16)))
    changes = Counter(update.kind for update in difference(before, after))
    assert changes == {"MODIFY": 1, "INSERT": 2, "DELETE": 2}
    for wanted in (before, after):
        switch.reconcile(wanted)
        found = wire.decode(switch._read(fy.P4TableEntry()), frozenset({"painted"}))
        assert found.entries == wanted.entries


@pytest.mark.parametrize("slots", [0, 1, 3])
def test_a_number_of_cells_that_is_no_power_of_two_is_an_error(slots: int) -> None:
    with pytest.raises(sdk.AlgorithmError, match="power of two"):
        sdk.cells_of(sdk.Job(0, 2, 5312, 64, {"slots": slots}))


def test_counters_are_tables_that_count() -> None:
    require_fit({}, ATP, ("decide", "workers"))
    for name in ("absent", "mac_table"):
        with pytest.raises(sdk.AlgorithmError, match=f"counters has '{name}': expected one of .*decide"):
            require_fit({}, ATP, (name,))


def test_one_switch_is_for_one_switch() -> None:
    wide = named("leaf-spine:racks=2,spines=1", rails=["ina"], rates=[0]).planes[0]
    with pytest.raises(sdk.AlgorithmError, match="has 3 switches: expected one switch"):
        sdk.one_switch(wide, [])
