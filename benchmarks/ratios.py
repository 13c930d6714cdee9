# SPDX-License-Identifier: Apache-2.0
"""A short fixed set of ratios, compared with those of `baseline.toml`."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from railweave.benchmarks import harness, switch
from railweave.errors import of_file
from railweave.experiments.contenders import Contender
from railweave.experiments.errors import OptionError
from railweave.experiments.figures import run_by
from railweave.experiments.measures import Measured, NotMeasured, Runs, measure
from railweave.experiments.records import Record, failures
from railweave.experiments.runner import Runner
from railweave.experiments.scenario import Scenario, Workload
from railweave.topologies.errors import TopologyError
from railweave.topologies.values import build

BASELINE = Path(__file__).with_name("baseline.toml")
SAME, BETTER, WORSE = "same", "better", "worse"
RAILS = ("ina", "tcp", "rdma")
SCENARIO = Scenario(
    name="bench",
    contenders=(
        Contender("+".join(RAILS), "railweave"),
        *(Contender(rail, "railweave", (rail,)) for rail in RAILS),
        Contender("gloo", "gloo", ("tcp",)),
    ),
    workload=Workload((1 << 10, 1 << 20), iterations=300, seconds=1.0),
    rails=RAILS,
    repetitions=3,
)
SWITCH: Mapping[str, Any] = {"lanes": 256, "hosts": 2, "seconds": 1.0}


@dataclass(frozen=True)
class Ratio:
    """One line of the baseline, and its present value. A greater value is better."""

    text: str
    measure: Mapping[str, Any]
    value: float
    tolerance: float  # relative
    measured: Measured | None = None
    missing: str = ""  # the reason, if it could not be measured

    @property
    def verdict(self) -> str:
        """Return whether the ratio is the same, better, worse or not measured."""
        if self.measured is None:
            return "not measured"
        change = self.measured.value - self.value
        if abs(change) <= self.tolerance * self.value:
            return SAME
        return BETTER if change > 0 else WORSE


@dataclass(frozen=True)
class _Baseline:
    ratios: tuple[Ratio, ...]


def load(path: Path = BASELINE) -> tuple[Ratio, ...]:
    """Read the baseline. Raise OptionError for a mistake in the file."""
    try:
        return build(_Baseline, tomllib.loads(path.read_text()), "baseline").ratios
    except (OSError, ValueError, TopologyError) as error:
        raise of_file(OptionError, path, error, "ratios in TOML") from None


async def run(out: Path, on_phase: Callable[[str], None]) -> tuple[list[Ratio], list[str]]:
    """Measure all ratios. Return them, and a line for each run that failed.

    Raises OptionError and LabError.
    """
    ratios = load()
    records = await Runner(SCENARIO, out, on_phase=on_phase).run()
    return compared(ratios, [*records, *await _switch(out, on_phase)]), failures(records)


async def _switch(out: Path, on_phase: Callable[[str], None]) -> list[Record]:
    """Return the ratios of the two switches as runs, or one skipped run without BMv2."""
    chosen = switch.benchmark(**SWITCH, compare=["bmv2"]).only(["load"])
    if chosen.missing:
        return [run_by("switch", SWITCH, 0, contender="bmv2", status="skipped", error=chosen.missing[0])]
    found = await harness.run(chosen, SCENARIO.repetitions, out / "switch", on_phase)
    [ratios] = (row.samples for row in found.rows if row.name == "embedded is")
    return [
        run_by("switch", SWITCH, round_, contender="embedded", extra={"ratio": ratio})
        for round_, ratio in enumerate(ratios)
    ]


def compared(ratios: Sequence[Ratio], records: Sequence[Record]) -> list[Ratio]:
    """Return a baseline's ratios with their present values, measured in runs."""
    runs, found = Runs(records), []
    for ratio in ratios:
        try:
            found.append(replace(ratio, measured=measure(runs, ratio.measure)))
        except NotMeasured as error:
            found.append(replace(ratio, missing=str(error)))
    return found


def updated(text: str, found: Sequence[Ratio]) -> str:
    """Return the baseline's text with the present values. Values that were not measured stay."""
    values = iter(found)

    def value(match: re.Match[str]) -> str:
        one = next(values)
        return f"value = {one.measured.value:.3g}" if one.measured else match[0]

    return re.sub(r"^value = .*$", value, text, flags=re.MULTILINE)
