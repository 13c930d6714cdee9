# SPDX-License-Identifier: Apache-2.0
"""The split of each call of a trace, in phases between the changes of a rail's rate."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from railweave.experiments import statistics
from railweave.experiments.errors import OptionError
from railweave.experiments.figures import drawing
from railweave.experiments.figures.panels import Panel
from railweave.experiments.measures import Runs, limits_bps, size_text
from railweave.experiments.records import Record
from railweave.experiments.scenario import Scenario

if TYPE_CHECKING:
    from matplotlib.axes import Axes

STEADY = 0.9  # share of the calls after convergence that are near the final share; the others are trials
NEAR = 0.05  # relative distance from the final share


def with_phases(record: Record, scenario: Scenario) -> Record:
    """Return the record with the phases of its trace. Raise OptionError if a phase has no call."""
    last, (sample,) = scenario.network.planes[-1], record.samples
    shares = [of.get(last.name, 0) / max(1, sum(of.values())) for of in sample.carried]
    # A call during a change of rates belongs to the phase in which it began.
    changes = [bisect_right(sample.starts_s, at_s) for at_s, _ in record.extra["events"]]
    edges = [0, *changes, len(shares)]
    names = ["cold start", *(f"{last.name} at {last.rate_bps / part / 1e6:g} Mbit/s" for part in (2, 1))]
    limits = limits_bps(scenario, scenario.contenders[0])
    usual = limits[last.name] / sum(limits.values())
    promised = (usual, usual / (2 - usual), usual)  # share a of a + b = 1, and the share when a becomes a / 2
    if len(edges) != len(names) + 1 or not all(one < other for one, other in pairwise(edges)):
        raise OptionError(
            f"{scenario.name}: calls are too slow to show a change of rates",
            "more calls per second",
            "choose smaller --sizes",
        )
    phases = [
        {
            "what": name,
            "from_call": begin,
            "limit_share": share,
            **_phase(shares[begin:end], sample.times_us[begin:end]),
        }
        for name, share, (begin, end) in zip(names, promised, pairwise(edges), strict=True)
    ]
    off = max(abs(phase["final_share"] - phase["limit_share"]) for phase in phases)
    return replace(
        record, extra={**record.extra, "rail": last.name, "phases": phases, "shares": shares, "off": off}
    )


def _phase(shares: Sequence[float], times_us: Sequence[float]) -> dict[str, Any]:
    final = statistics.median(shares[-10:])
    return {
        "final_share": final,
        "calls": len(shares),
        "converged_after": converged_after(shares, final),
        "final_time_us": statistics.median(times_us[-10:]),
    }


def converged_after(shares: Sequence[float], final: float) -> int:
    """Return the number of calls until shares stay near the final share, except in trials."""
    near = [abs(share - final) <= NEAR * final for share in shares]
    for place in range(len(near)):
        if near[place] and sum(near[place:]) >= STEADY * len(near[place:]):
            return place
    return len(near)


def lines(record: Record) -> list[str]:
    """Return a line per phase."""
    return [
        f"{phase['what']:<24}{phase['final_share']:>6.1%} on {record.extra['rail']} after "
        f"{phase['converged_after']} calls, {phase['final_time_us']:.0f} us per call"
        for phase in record.extra["phases"]
    ]


@dataclass(frozen=True, kw_only=True)
class Shares(Panel):
    """The last rail's share from call to call. Dashed: a change of its rate."""

    scenario: str

    def draw(self, axes: Axes, runs: Runs) -> set[str]:
        """Draw the trace."""
        (record,) = runs.kept[self.scenario]
        rail = record.extra["rail"]
        axes.plot([100 * s for s in record.extra["shares"]], ".-", lw=0.8, color=drawing.colour(rail))
        for phase in record.extra["phases"]:
            final, begin = 100 * phase["final_share"], phase["from_call"]
            if begin:
                axes.axvline(begin - 0.5, color=drawing.INK, ls="--", lw=1)
            axes.hlines(final, begin, begin + phase["calls"], color=drawing.FAINT, lw=0.8)
        axes.set_ylim(-4, 104)
        axes.set_xlabel(f"allreduce of {size_text(record.samples[0].size_bytes)}, from a cold start")
        axes.set_ylabel(f"share of {rail} (%)")
        return {"Dashed: where the rate of that rail was changed."}
