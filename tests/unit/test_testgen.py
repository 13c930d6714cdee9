# SPDX-License-Identifier: Apache-2.0
"""The aggregation programs pass the tests that P4Testgen has generated from their sources."""

from __future__ import annotations

import pytest
from vectors import bmv2, testgen
from vectors import steps as do
from vectors.embedded import Embedded
from vectors.steps import Call, Controlled, Frames
from vectors.testgen import SOURCES, Generated, Source

from railweave.switch.lowering import lower
from railweave.switch.pipeline import Pipeline

GUARD = ("trunk_ports", "ipv4_sources", "arp_sources", "other_sources")

pytestmark = pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.name)


def tables(test: Generated) -> set[str]:
    """Return the tables that a test fills."""
    return {
        step.arguments["table"] for step in test.writes if isinstance(step, Call) and step.method == "insert"
    }


def result(switch: Controlled, test: Generated) -> Frames:
    """Write a test's entries and return its output. Trust the input port if the test lists no sources."""
    if not any(table in GUARD for table in tables(test)):
        switch.do(do.insert("trunk_ports", {"ingress_port": test.packet.port}, "trusted", {}))
    for step in test.writes:
        switch.do(step)
    (frames,) = switch.packets([test.packet])
    return frames


def test_on_the_embedded_switch(source: Source) -> None:
    lowered = lower(source.program.json.read_bytes())
    for number, test in enumerate(testgen.load(source)):
        switch = Embedded(source.program.schema, Pipeline(*lowered))
        assert result(switch, test) == test.expected, number


@bmv2.ALONE
@pytest.mark.skipif(bmv2.missing() is not None, reason=str(bmv2.missing()))
def test_on_bmv2(source: Source) -> None:
    for number, test in enumerate(testgen.load(source)):
        with bmv2.running(source.program.p4info, source.program.json) as switch:
            assert result(switch, test) == test.expected, number


def test_every_table_has_entries_and_packets_leave(source: Source) -> None:
    tests = testgen.load(source)
    filled = set[str]().union(*map(tables, tests))
    assert filled == {"virtual_addresses", "members", "mac_table", "uplinks", "replicas"}
    assert sum(bool(test.expected) for test in tests) >= 50
