# SPDX-License-Identifier: Apache-2.0
"""The engine gives the same answers as the real BMv2: golden vectors, recorded by `vectors.record`."""

from __future__ import annotations

import pytest
from vectors.case import Case, cases
from vectors.embedded import Embedded
from vectors.steps import Packet

from railweave.switch.pipeline import Pipeline


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
@pytest.mark.parametrize("way", ["interpreted", "compiled"])
def test_does_as_bmv2_did(case: Case, way: str) -> None:
    switch = Embedded(case.schema, Pipeline.load(case.json.read_bytes()), compiled=way == "compiled")
    recorded = case.load()
    assert sum(isinstance(step, Packet) for step, _ in recorded) > 1
    for number, (step, result) in enumerate(recorded):
        assert switch.do(step) == result, f"step {number}: {step}"
