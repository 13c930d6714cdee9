# SPDX-License-Identifier: Apache-2.0
"""The curve of time over loss: the values of its points, and its picture."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from railweave.experiments.figures import drawing
from railweave.experiments.loss.run import Point, as_json, chunks_of, draw, impairment, workload

POINT = Point("planes, 8 hosts", 8, 0.01, 0.01, 0.01, 4096, 1.5, 0.9, 0, 321)


def test_good_conditions_impair_nothing() -> None:
    assert impairment({"loss": 0, "duplicate": 0, "reorder": 0}) == ""
    assert (
        impairment({"loss": 0.001, "duplicate": 0.01, "reorder": 0}) == "loss=0.001,duplicate=0.01,reorder=0"
    )


def test_chunks_are_counted_with_the_last_partial_one() -> None:
    assert chunks_of(1028) == 2
    assert workload(5, 1028).iterations == 3


def test_a_wrong_element_anywhere_is_not_ok() -> None:
    assert as_json([POINT])["ok"]
    assert not as_json([POINT, replace(POINT, wrong=1)])["ok"]


def test_the_curve_is_drawn(tmp_path: Path) -> None:
    path = tmp_path / "loss.svg"
    drawing.save(draw([replace(POINT, loss=0), POINT]), "links of 100 Mbit/s", path)
    assert "<svg" in path.read_text()
