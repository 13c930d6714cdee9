# SPDX-License-Identifier: Apache-2.0
"""The aggregation programs do what P4Testgen says of their sources."""

from __future__ import annotations

import pytest
from vectors import bmv2, testgen
from vectors.embedded import Embedded
from vectors.steps import Frames, Insert, Target
from vectors.testgen import SOURCES, Generated, Source

from railweave.switch.lowering import lower
from railweave.switch.pipeline import Pipeline

pytestmark = pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.name)


def result(switch: Target, test: Generated) -> Frames:
    """What leaves a switch without entries."""
    for step in test.writes:
        switch.do(step)
    (frames,) = switch.packets([test.packet])
    return frames


def test_on_the_embedded_switch(source: Source) -> None:
    lowered = lower(source.program.json.read_bytes())
    for number, test in enumerate(testgen.load(source)):
        assert result(Embedded(Pipeline(*lowered)), test) == test.expected, number


@bmv2.ALONE
@pytest.mark.skipif(bmv2.missing() is not None, reason=str(bmv2.missing()))
def test_on_bmv2(source: Source) -> None:
    for number, test in enumerate(testgen.load(source)):
        with bmv2.running(source.program.p4info, source.program.json) as switch:
            assert result(switch, test) == test.expected, number


def test_every_table_has_entries_and_packets_leave(source: Source) -> None:
    tests = testgen.load(source)
    tables = {step.table for test in tests for step in test.writes if isinstance(step, Insert)}
    assert tables == {"virtual_addresses", "members", "mac_table", "uplinks", "replicas"}
    assert sum(bool(test.expected) for test in tests) >= 50
