# SPDX-License-Identifier: Apache-2.0
"""The aggregation programs pass the tests that P4Testgen has generated from their sources."""

from __future__ import annotations

from typing import Any

import pytest
from vectors import bmv2, testgen
from vectors.embedded import Embedded
from vectors.steps import Call, Controlled, Frames, Step
from vectors.testgen import SOURCES, Generated, Source

from railweave.switch.lowering import lower
from railweave.switch.pipeline import Pipeline

GUARD = ("trunk_ports", "ipv4_sources", "arp_sources", "other_sources")

pytestmark = pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.name)


def table_of(step: Step) -> str:
    """Return the table into which a step writes, or an empty text."""
    return str(step.arguments["table"]) if isinstance(step, Call) and step.method == "insert" else ""


def result(switch: Controlled, test: Generated) -> Frames:
    """Write a test's entries and return its output. Trust the input port if the test lists no sources."""
    if not {table_of(step) for step in test.writes} & {*GUARD}:
        trusted = {"table": "trunk_ports", "match": {"ingress_port": test.packet.port}, "action": "trusted"}
        switch.do(Call("insert", trusted))
    for step in test.writes:
        switch.do(step)
    (frames,) = switch.packets([test.packet])
    return frames


def test_on_the_embedded_switch(source: Source) -> None:
    lowered = lower(source.program.json.read_bytes())
    assert not [n for n, test in enumerate(testgen.load(source)) if fails(source, lowered, test)]


@bmv2.ALONE
@pytest.mark.skipif(bmv2.missing() is not None, reason=str(bmv2.missing()))
def test_on_bmv2(source: Source) -> None:
    for number, test in enumerate(testgen.load(source)):
        with bmv2.running(source.program.p4info, source.program.json) as switch:
            assert result(switch, test) == test.expected, number


def fails(source: Source, lowered: tuple[Any, bytes], test: Generated) -> bool:
    return result(Embedded(source.program.schema, Pipeline(*lowered)), test) != test.expected


def test_every_table_has_entries_and_packets_leave(source: Source) -> None:
    tests = testgen.load(source)
    tables = {table_of(step) for test in tests for step in test.writes} - {""}
    assert tables == {"virtual_addresses", "members", "mac_table", "uplinks", "replicas"}
    assert sum(bool(test.expected) for test in tests) >= 50
