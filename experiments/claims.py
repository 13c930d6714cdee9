# SPDX-License-Identifier: Apache-2.0
"""Claims as data, and the verdicts that records give on them.

A claim has the paper's number and its source, the range that we expect, and the measure. The verdict is
computed. *Reproduced*: the number lies in the paper's range. *Shape only*: the number lies in the expected
range, but the paper's number differs or cannot be compared. *Not reproduced*: all other cases. A reason says
if the number's interval crosses an end of the range, from inside or from outside.
"""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from railweave.experiments import measures
from railweave.experiments.errors import OptionError
from railweave.experiments.measures import Measured, NotMeasured, Runs, measure
from railweave.experiments.units import number_text

REPRODUCED, SHAPE_ONLY, NOT_REPRODUCED = "reproduced", "shape only", "not reproduced"
NOT_MEASURED = "not measured"
SHAPE, ABSOLUTE = "shape", "absolute"
READ, DERIVED = "R", "D"  # in the paper's abstract, code or data; or derived from that, or from the links


@dataclass(frozen=True)
class Paper:
    """A paper's number and its source."""

    text: str  # for readers: "+58 % to +87 %"
    source: str
    mark: str  # READ or DERIVED
    range: tuple[float, ...] = ()  # least and greatest; empty if the number cannot be compared


@dataclass(frozen=True)
class Claim:
    """One statement that a figure should show. In its text, x is the measured number."""

    id: str
    text: str
    measure: Mapping[str, Any]  # `what`, a name in MEASURES, and the arguments of that measure
    expected: tuple[float, ...]  # least and greatest
    expected_because: str
    kind: str = ABSOLUTE  # the number can be compared with the paper's; SHAPE: it cannot
    paper: Paper | None = None
    tolerance: float = 0.0  # relative; both ends of the ranges are widened by this factor
    unit: str = ""  # is written behind the number
    links: bool = False  # a claim about links: CPU-bound runs cannot reproduce it

    def planned(self, names: Iterable[str]) -> bool:
        """Return whether `names` has all scenarios and experiments that the claim needs."""
        return all(fnmatch.filter(names, pattern) for pattern in needed(self.measure))

    def check(self) -> None:
        """Raise OptionError for an invalid value."""
        ranges = [self.expected, *([self.paper.range] if self.paper and self.paper.range else [])]
        for low_high in ranges:
            if len(low_high) != 2 or not 0 <= low_high[0] <= low_high[1]:
                raise OptionError(
                    f"claim {self.id!r}: range {low_high}",
                    "two numbers from 0 on, in ascending order",
                    "correct the claim",
                )
        if self.kind not in (SHAPE, ABSOLUTE):
            raise OptionError(
                f"claim {self.id!r}: kind {self.kind!r}", f"{SHAPE} or {ABSOLUTE}", "correct the claim"
            )
        if self.paper and self.paper.mark not in (READ, DERIVED):
            raise OptionError(
                f"claim {self.id!r}: mark {self.paper.mark!r}", f"{READ} or {DERIVED}", "correct the claim"
            )
        measures.check(self.measure, f"claim {self.id!r}")


def needed(ask: Mapping[str, Any]) -> list[str]:
    """Return the names and patterns of the scenarios and experiments that a measure reads."""
    found = [ask["scenario"]] if "scenario" in ask else []
    found += ask.get("scenarios", ())
    ratio = ("of", "over") if ask["what"] == "extra_ratio" else ()
    return [*found, *(ask[part] for part in ratio if part in ask)]


@dataclass(frozen=True)
class Verdict:
    """The verdict on a claim, with the measured number."""

    claim: Claim
    verdict: str
    reason: str
    measured: Measured | None = None


def judge(claim: Claim, runs: Runs) -> Verdict:
    """Measure a claim's number in runs and return the verdict."""
    try:
        found = measure(runs, claim.measure)
    except NotMeasured as error:
        return not_measured(claim, str(error))
    return verdict(claim, found)


def not_measured(claim: Claim, reason: str) -> Verdict:
    """Return the verdict on a claim without a number."""
    return Verdict(claim, NOT_MEASURED, reason)


def verdict(claim: Claim, found: Measured) -> Verdict:
    """Return the verdict on a claim from its measured number."""
    target = claim.paper.range if claim.kind == ABSOLUTE and claim.paper and claim.paper.range else None
    aim = target or claim.expected
    bound = f"the CPU was the bottleneck in {found.cpu_bound} of the runs" if found.cpu_bound else ""
    if _inside(found.value, aim, claim.tolerance):
        doubt = _doubt(found, aim, claim.tolerance)
        if claim.kind == SHAPE:
            return Verdict(claim, SHAPE_ONLY, doubt, found)
        if claim.links and bound:
            return Verdict(claim, SHAPE_ONLY, _joined(bound, doubt), found)
        return Verdict(claim, REPRODUCED, doubt, found)
    off = f"{'below' if found.value < aim[0] else 'above'} {range_text(aim)}"
    reaches = found.high >= aim[0] * (1 - claim.tolerance) and found.low <= aim[1] * (1 + claim.tolerance)
    doubt = f"the interval reaches into {range_text(aim)}" if reaches else ""
    if target and _inside(found.value, claim.expected, claim.tolerance):
        past = _doubt(found, claim.expected, claim.tolerance)
        return Verdict(claim, SHAPE_ONLY, _joined(f"{off}, but as expected here", doubt, past), found)
    return Verdict(claim, NOT_REPRODUCED, _joined(off, doubt, bound), found)


def range_text(low_high: Sequence[float]) -> str:
    """Return `1.58 to 1.90`, `≥ 0.95` or `≤ 200`."""
    low, high = low_high
    if low == high:
        return number_text(low, 4)
    if math.isinf(high):
        return f"≥ {number_text(low, 4)}"
    most = number_text(high, 4)
    return f"≤ {most}" if low == 0 else f"{number_text(low, 4)} to {most}"


def _inside(value: float, low_high: Sequence[float], tolerance: float) -> bool:
    low, high = low_high
    return low * (1 - tolerance) <= value <= high * (1 + tolerance)


def _doubt(found: Measured, low_high: Sequence[float], tolerance: float) -> str:
    """Return a remark on a number in the range, if its interval is not."""
    sure = all(_inside(end, low_high, tolerance) for end in (found.low, found.high))
    return "" if sure else f"the interval reaches past {range_text(low_high)}"


def _joined(*reasons: str) -> str:
    return "; ".join(reason for reason in reasons if reason)
