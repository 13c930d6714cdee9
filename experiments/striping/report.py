# SPDX-License-Identifier: Apache-2.0
"""Results of the striping experiments: times in microseconds, shares, and each claim with its measure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from railweave.experiments import statistics, tables
from railweave.experiments.errors import OptionError
from railweave.experiments.measures import threshold
from railweave.experiments.striping.regret import HALF, Regret
from railweave.experiments.striping.run import OVERHEAD_CALLS, Found

STEADY = 0.9  # share of the calls after convergence that are near the final share; the others are trials
NEAR = 0.05  # relative distance from the final share
LARGE_BYTES = 4 << 20
WITHIN_CALLS = 20
REGRET, WORST_CALL = (0.10, 0.03), 1.25  # by half of the calls; of a call of 1 MiB or more
SPEEDUP, NEVER_BELOW, OF_SUM, OVERHEAD = 1.90, 0.97, 0.95, 0.05
POINTS, END_POINTS = 0.03, 0.05  # distance of a share; the same at the end of a phase of a trace


@dataclass(frozen=True)
class Claim:
    """A statement that must hold, its measured value, and whether it holds."""

    claim: str
    case: str
    value: float
    wanted: str
    ok: bool


def _least(claim: str, case: str, value: float, bound: float) -> Claim:
    return Claim(claim, case, value, f">= {bound}", value >= bound)


def _most(claim: str, case: str, value: float, bound: float, unit: str = "") -> Claim:
    return Claim(claim, case, value, f"<= {bound}{unit}", value <= bound)


def as_json(found: Sequence[Found], regrets: Sequence[Regret] = ()) -> dict[str, Any]:
    """Return all results as JSON values."""
    stated = [*claims(found), *regret_claims(regrets)]
    wrong = sum(each.wrong for each in found)
    return {
        "claims": [asdict(claim) for claim in stated],
        "rows": [
            *(_AS_ROW[each.case.part](each) for each in found),
            *({"part": "regret", **asdict(each)} for each in regrets),
        ],
        "wrong": wrong,
        "ok": wrong == 0,
    }


def _case(found: Found) -> dict[str, Any]:
    case = found.case
    return {
        "part": case.part,
        "rails": list(case.rails),
        "kinds": list(case.kinds),
        "rates_bps": list(case.rates_bps),
        "hosts": case.hosts,
    }


# ------------------------------------------------------------ times and shares by size


def sweep(found: Found) -> dict[str, Any]:
    """Return the rows of a case, the size from which calls are split, and the split of the largest size."""
    rows = [_size(found, size) for size in found.sizes]
    largest = rows[-1]
    begins = threshold({row["bytes"]: row["shares"] for row in rows})
    return {
        **_case(found),
        "threshold_bytes": begins if begins <= largest["bytes"] else None,
        "second_share_at_largest": largest["shares"][found.case.rails[1]],
        "bandwidth_shares": largest["bandwidth_shares"],
        "limit_shares": found.case.limit_shares(),
        "rows": rows,
    }


def _size(found: Found, size: int) -> dict[str, Any]:
    seconds = found.seconds(found.together, size)
    time_s = statistics.median(seconds)
    alone = {rail: statistics.median(found.seconds(rail, size)) for rail in found.case.rails}
    speeds = {rail: 1 / median_s for rail, median_s in alone.items()}
    return {
        "bytes": size,
        "time_us": time_s * 1e6,
        "p99_us": statistics.p99(seconds) * 1e6,
        "alone_us": {rail: median_s * 1e6 for rail, median_s in alone.items()},
        "speedup": min(alone.values()) / time_s,  # over the best rail alone
        "of_sum": 1 / time_s / sum(speeds.values()),  # relative to the sum of the rails alone
        "shares": found.shares(size),
        "bandwidth_shares": {rail: speed / sum(speeds.values()) for rail, speed in speeds.items()},
        "runs": len(seconds),
        "wrong": sum(s.wrong for record in found.records if (s := record.sample(size)) is not None),
    }


# ------------------------------------------------------------ time to learn a split


def trace(found: Found) -> dict[str, Any]:
    """Return a trace with its phases between changes of rates. Raise OptionError if a phase has no call."""
    case, (record,) = found.case, found.records
    last, rate_bps, (sample,) = case.rails[-1], case.rates_bps[-1], record.samples
    shares = [of.get(last, 0) / max(1, sum(of.values())) for of in sample.carried]
    # A call during a change of rates belongs to the phase in which it began.
    changes = [bisect_right(sample.starts_s, at_s) for at_s, _ in record.extra["events"]]
    edges = [0, *changes, len(shares)]
    names = ["cold start", *(f"{last} at {rate / 1e6:g} Mbit/s" for rate in (rate_bps // 2, rate_bps))]
    usual = case.limit_shares()[last]
    promised = (usual, usual / (2 - usual), usual)  # share a of a + b = 1, and the share when a becomes a / 2
    if len(edges) != len(names) + 1 or not all(one < other for one, other in pairwise(edges)):
        raise OptionError(
            f"{case.name}: calls are too slow to show a change of rates",
            "more calls per second",
            "choose smaller --sizes",
        )
    return {
        **_case(found),
        "bytes": sample.size_bytes,
        "rail": last,
        "phases": [
            {
                "what": name,
                "from_call": begin,
                "limit_share": share,
                **_phase(shares[begin:end], sample.times_us[begin:end]),
            }
            for name, share, (begin, end) in zip(names, promised, pairwise(edges), strict=True)
        ],
        "shares": shares,
        "time_us": list(sample.times_us),
    }


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


# ------------------------------------------------------------ overhead of striping


def overhead(found: Found) -> dict[str, Any]:
    """Return the times of small calls on all rails and on the best rail, compared block by block."""
    (size,) = found.sizes
    together = _blocks(found.seconds(found.together, size))
    alone = {rail: _blocks(found.seconds(rail, size)) for rail in found.case.rails}
    best = min(alone, key=lambda rail: statistics.median(alone[rail]))
    return {
        **_case(found),
        "bytes": size,
        "blocks": len(together),
        "calls_per_block": OVERHEAD_CALLS,
        "best_rail": best,
        "best_us": statistics.median(alone[best]) * 1e6,
        "time_us": statistics.median(together) * 1e6,
        "overhead": statistics.median(statistics.ratios(together, alone[best])) - 1,
        "wrong": found.wrong,
    }


def _blocks(seconds: Sequence[float]) -> list[float]:
    """Return the mean time of each block of calls. Each block contains at least one survey."""
    return [float(mean) for mean in np.reshape(seconds, (-1, OVERHEAD_CALLS)).mean(axis=1)]


# ------------------------------------------------------------ claims


def claims(found: Sequence[Found]) -> list[Claim]:
    """Return all claims that these cases can support or refute."""
    stated: list[Claim] = []
    for each in found:
        if each.case.part in ("sizes", "thresholds"):
            stated += _sweep_claims(each, sweep(each))
        elif each.case.part == "convergence":
            phases = trace(each)["phases"]
            off = max(abs(phase["final_share"] - phase["limit_share"]) for phase in phases)
            claim = "final share of the last rail, difference from the limit of its link"
            stated.append(_most(claim, each.case.name, off, END_POINTS))
            for phase in phases:
                calls = phase["converged_after"]
                claim = f"{phase['what']}: split within 5 % of its final value"
                stated.append(_most(claim, each.case.name, calls, WITHIN_CALLS, " calls"))
        else:
            cost = overhead(each)
            claim = f"overhead at {cost['bytes']} bytes, relative to the best rail alone"
            stated.append(_most(claim, each.case.name, cost["overhead"], OVERHEAD))
    return [*stated, *_growth(found)]


def regret_claims(regrets: Sequence[Regret]) -> list[Claim]:
    """Return the claims on the cost of learning."""
    stated = []
    for each in regrets:
        first, second = each.halves
        stated.append(_most(f"regret of the first {HALF} calls", each.name, first, REGRET[0]))
        stated.append(_most(f"regret of the next {HALF} calls", each.name, second, REGRET[1]))
        stated.append(
            _most("time of a large call, relative to the best split", each.name, each.worst, WORST_CALL)
        )
    return stated


def _sweep_claims(found: Found, of: Mapping[str, Any]) -> list[Claim]:
    name, rows = found.case.name, of["rows"]
    least = min(row["speedup"] for row in rows)
    stated = [_least("never slower than the best rail alone", name, least, NEVER_BELOW)]
    large = [row for row in rows if row["bytes"] >= LARGE_BYTES]
    if large and found.case.part == "sizes":
        if len(set(found.case.rates_bps)) == 1 and len(found.case.kinds) == 2:
            speedup = min(row["speedup"] for row in large)
            stated.append(_least("speedup from 4 MiB on", name, speedup, SPEEDUP))
        else:
            part = min(row["of_sum"] for row in large)
            stated.append(_least("bandwidth, relative to the sum of the rails alone", name, part, OF_SUM))
    second = found.case.rails[1]
    off = abs(of["second_share_at_largest"] - of["bandwidth_shares"][second])
    return [
        *stated,
        _most("share of the second rail, difference from the bandwidth ratio", name, off, POINTS),
    ]


def _growth(found: Sequence[Found]) -> list[Claim]:
    """Return the claim that the threshold of ina+tcp grows with the number of hosts."""
    thresholds = {
        each.case.hosts: sweep(each)["threshold_bytes"] or float("inf")
        for each in found
        if each.case.part == "thresholds" and each.case.kinds == ("ina", "tcp")
    }
    if len(thresholds) < 2:
        return []
    ordered = [thresholds[hosts] for hosts in sorted(thresholds)]
    grows = all(one <= other for one, other in pairwise(ordered)) and ordered[0] < ordered[-1]
    hosts = ", ".join(f"{hosts}: {value:g}" for hosts, value in sorted(thresholds.items()))
    where = f"ina+tcp, bytes by hosts {hosts}"
    return [Claim("threshold grows with the hosts", where, ordered[-1] / ordered[0], "> 1", grows)]


# ------------------------------------------------------------ lines


def lines(found: Found) -> list[str]:
    """Return the lines of a case: its name, then its rows."""
    case = found.case
    if case.part == "convergence":
        rows = [
            f"{phase['what']:<24}{phase['final_share']:>6.1%} on {case.rails[-1]} after "
            f"{phase['converged_after']} calls, {phase['final_time_us']:.0f} us per call"
            for phase in trace(found)["phases"]
        ]
    elif case.part == "overhead":
        cost = overhead(found)
        rows = [
            f"{cost['bytes']} bytes: {cost['time_us']:.1f} us, {cost['overhead']:+.1%} relative to "
            f"{cost['best_us']:.1f} us on {cost['best_rail']} alone"
        ]
    else:
        numbers = ("size", "time", *case.rails, "speedup", "%sum", "#wrong")
        units = ("(B)", *["(us)"] * (1 + len(case.rails)), "", "", "")
        widths = (9, *[10] * (1 + len(case.rails)), 8, 8, 7)
        printed = tables.Lines(list(zip(numbers, units, widths, strict=True)), "share per rail (%)")
        rows = [printed.titles, *(_line(printed, row) for row in sweep(found)["rows"])]
    return [f"# {case.part}: {case.name}", *rows]


def _line(printed: tables.Lines, row: Mapping[str, Any]) -> str:
    times = (f"{time_us:.0f}" for time_us in (row["time_us"], *row["alone_us"].values()))
    numbers = (f"{row['speedup']:.2f}", f"{row['of_sum']:.1%}", str(row["wrong"]))
    return printed.row((str(row["bytes"]), *times, *numbers), tables.shares(row["shares"]))


_AS_ROW = {"sizes": sweep, "thresholds": sweep, "convergence": trace, "overhead": overhead}  # by part
