# SPDX-License-Identifier: Apache-2.0
"""The engine gives the same answers as the real BMv2: golden vectors, recorded by `vectors.record`."""

from __future__ import annotations

import json

import pytest
from vectors.case import Case, cases
from vectors.embedded import Embedded
from vectors.steps import Packet

from railweave.switch.trace import render

CASES = pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)


@CASES
@pytest.mark.parametrize("way", ["interpreted", "compiled"])
def test_does_as_bmv2_did(case: Case, way: str) -> None:
    switch = Embedded(case.schema, case.pipeline(), compiled=way == "compiled")
    recorded = case.load()
    assert sum(isinstance(step, Packet) for step, _ in recorded) > 1
    for number, (step, result) in enumerate(recorded):
        assert switch.do(step) == result, f"step {number}: {step}"


@CASES
def test_traced_packets_fare_as_on_bmv2(case: Case) -> None:
    switch = Embedded(case.schema, case.pipeline())
    switch.pipeline.traces.start(None, 1024)
    for number, (step, result) in enumerate(case.load()):
        assert switch.do(step) == result, f"step {number}: {step}"
        if isinstance(step, Packet):
            [trace] = switch.pipeline.traces.take()
            emitted = [event.values for event in trace.events if event.kind == "emitted"]
            left = [(values["port"], values["bytes"]) for values in emitted]
            assert sorted(left) == sorted((port, len(data) // 2) for port, data in result)
            assert render(json.loads(json.dumps(trace.json()))) == str(trace)
