# SPDX-License-Identifier: Apache-2.0
"""Ratios and their committed baseline."""

from __future__ import annotations

from pathlib import Path

import model_records
import pytest

from railweave.benchmarks import ratios
from railweave.benchmarks.ratios import BASELINE, BETTER, SAME, WORSE, Ratio, compared, load, updated
from railweave.experiments.errors import OptionError
from railweave.experiments.records import Record
from railweave.experiments.reproduce import seconds

BUDGET_S = 300


def test_the_set_is_short_and_all_of_it_is_measured() -> None:
    ratios.SCENARIO.check()
    assert seconds(ratios.SCENARIO) + 20 * ratios.SCENARIO.repetitions * ratios.SWITCH["seconds"] < BUDGET_S
    found = compared(load(), model_records.of_scenario(ratios.SCENARIO))
    assert [each.text for each in found if each.measured is None] == [load()[-1].text]  # BMv2's
    assert found[-1].verdict == "not measured"


def baseline_of(records: list[Record], folder: Path) -> tuple[Ratio, ...]:
    """Return the baseline that an update from these records writes."""
    file = folder / "baseline.toml"
    file.write_text(updated(BASELINE.read_text(), compared(load(), records)))
    return load(file)


@pytest.mark.parametrize(("reached", "verdict"), [(0.96, SAME), (0.8, WORSE), (1.2, BETTER)])
def test_what_has_moved_is_said(reached: float, verdict: str, tmp_path: Path) -> None:
    baseline = baseline_of(model_records.of_scenario(ratios.SCENARIO), tmp_path)
    found = compared(baseline, model_records.of_scenario(ratios.SCENARIO, {"rdma": reached}))
    moved = {each.text: each.verdict for each in found}
    assert moved["rdma, 1 MiB: part of the links' limit"] == verdict
    assert moved["tcp, 1 MiB: part of the links' limit"] == SAME


def test_an_update_makes_now_the_baseline(tmp_path: Path) -> None:
    records = model_records.of_scenario(ratios.SCENARIO, {"rdma": 0.5})
    baseline = baseline_of(records, tmp_path)
    assert {each.verdict for each in compared(baseline, records)} == {SAME, "not measured"}
    assert baseline[-1] == load()[-1]


def test_a_baseline_that_is_none_is_named(tmp_path: Path) -> None:
    file = tmp_path / "baseline.toml"
    file.write_text('[[ratios]]\ntext = "x"')
    with pytest.raises(OptionError, match=r"baseline\.toml: .*no key 'measure'"):
        load(file)
