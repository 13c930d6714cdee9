# SPDX-License-Identifier: Apache-2.0
"""The aggregation programs pass the tests that P4Testgen has generated from their sources."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from vectors import bmv2, testgen
from vectors.controlled import Controlled
from vectors.embedded import Embedded
from vectors.steps import Frames, Insert
from vectors.testgen import SOURCES, Generated, Source

from railweave.switch.lowering import lower
from railweave.switch.pipeline import Pipeline

# Conditions whose negation fails a test, and all conditions. The other conditions affect only later packets
# (owner, tag, members and flags of a slot), chance (loss injector), or answers without a test (ARP, ping).
NOTICED = {"tna": (20, 33), "v1model": (43, 66)}

GUARD = ("trunk_ports", "ipv4_sources", "arp_sources", "other_sources")

pytestmark = pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.name)


def result(switch: Controlled, test: Generated) -> Frames:
    """Write a test's entries and return its output. Trust the input port if the test lists no sources."""
    if not any(isinstance(step, Insert) and step.table in GUARD for step in test.writes):
        switch.do(Insert("trunk_ports", {"ingress_port": test.packet.port}, "trusted", {}))
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


def mutants(program: bytes) -> Iterator[bytes]:
    """Yield compiled programs, each with one negated condition."""
    document = json.loads(program)
    for pipeline in document["pipelines"]:
        for condition in pipeline["conditionals"]:
            kept = dict(condition)
            condition.update(true_next=kept["false_next"], false_next=kept["true_next"])
            yield json.dumps(document).encode()
            condition.update(kept)


def test_negated_conditions_are_noticed(source: Source) -> None:
    tests = testgen.load(source)
    noticed = []
    for mutant in mutants(source.program.json.read_bytes()):
        lowered = lower(mutant)
        noticed.append(any(fails(source, lowered, test) for test in tests))
    assert (sum(noticed), len(noticed)) == NOTICED[source.name]


def test_every_table_has_entries_and_packets_leave(source: Source) -> None:
    tests = testgen.load(source)
    tables = {step.table for test in tests for step in test.writes if isinstance(step, Insert)}
    assert tables == {"virtual_addresses", "members", "mac_table", "uplinks", "replicas"}
    assert sum(bool(test.expected) for test in tests) >= 50
