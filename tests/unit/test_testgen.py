# SPDX-License-Identifier: Apache-2.0
"""The program for Tofino, on v1model, does what P4Testgen says of its source."""

from __future__ import annotations

import pytest
from dataplane.programs import TNA
from vectors import bmv2, testgen
from vectors.embedded import Embedded
from vectors.steps import Frames, Insert, Target
from vectors.testgen import Generated

from railweave.switch.lowering import lower
from railweave.switch.pipeline import Pipeline

TESTS = testgen.load()


def result(switch: Target, test: Generated) -> Frames:
    """What leaves a switch without entries."""
    for step in test.writes:
        switch.do(step)
    (frames,) = switch.packets([test.packet])
    return frames


def test_on_the_embedded_switch() -> None:
    lowered = lower(TNA.json.read_bytes())
    for number, test in enumerate(TESTS):
        assert result(Embedded(Pipeline(*lowered)), test) == test.expected, number


@pytest.mark.skipif(bmv2.missing() is not None, reason=str(bmv2.missing()))
def test_on_bmv2() -> None:
    for number, test in enumerate(TESTS):
        with bmv2.running(TNA.p4info, TNA.json) as switch:
            assert result(switch, test) == test.expected, number


def test_every_table_has_entries_and_packets_leave() -> None:
    tables = {step.table for test in TESTS for step in test.writes if isinstance(step, Insert)}
    assert tables == {"virtual_addresses", "members", "mac_table", "uplinks", "replicas"}
    assert sum(bool(test.expected) for test in TESTS) >= 50
