# SPDX-License-Identifier: Apache-2.0
"""Results of the striping experiments: times in microseconds, shares, and each claim with its measure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from railweave.experiments import statistics
from railweave.experiments.striping.values import Call, Found, Row

STEADY = 0.9  # of the calls after convergence: the others try what else there is
NEAR = 0.05  # of the final share
LARGE_BYTES = 4 << 20
WITHIN_CALLS = 20
SPEEDUP, NEVER_BELOW, OF_SUM, POINTS, OVERHEAD = 1.90, 0.97, 0.95, 0.03, 0.05


@dataclass(frozen=True)
class Claim:
    """One thing that must show, what was measured, and whether it does."""

    claim: str
    case: str
    value: float
    wanted: str
    ok: bool


def as_json(found: Sequence[Found]) -> dict[str, Any]:
    """Return everything for machines."""
    stated = claims(found)
    return {
        "claims": [asdict(claim) for claim in stated],
        "rows": [_AS_ROW[each.case.part](each) for each in found],
        "wrong": sum(each.wrong for each in found),
        "ok": all(each.wrong == 0 for each in found),
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


def by_size(found: Found) -> dict[int, dict[str, Row]]:
    """Return the rows by size and contender."""
    rows: dict[int, dict[str, Row]] = {}
    for row in found.rows:
        rows.setdefault(row.bytes, {})[row.contender] = row
    return rows


def sweep(found: Found) -> dict[str, Any]:
    """Return a case's rows, where its split begins, and where it tends to."""
    rows = [_size(found, size, of) for size, of in sorted(by_size(found).items())]
    largest = rows[-1]
    return {
        **_case(found),
        "threshold_bytes": threshold(rows),
        "second_share_at_largest": largest["shares"][found.case.rails[1]],
        "bandwidth_shares": largest["bandwidth_shares"],
        "limit_shares": found.case.limit_shares(),
        "rows": rows,
    }


def _size(found: Found, size: int, rows: Mapping[str, Row]) -> dict[str, Any]:
    together = rows["+".join(found.case.rails)]
    alone = {rail: rows[rail] for rail in found.case.rails}
    speeds = {rail: 1 / row.median_s for rail, row in alone.items()}
    best_s = min(row.median_s for row in alone.values())
    return {
        "bytes": size,
        "time_us": together.median_s * 1e6,
        "p99_us": statistics.p99(together.seconds) * 1e6,
        "alone_us": {rail: row.median_s * 1e6 for rail, row in alone.items()},
        "speedup": best_s / together.median_s,  # over the best rail alone
        "of_sum": 1 / together.median_s / sum(speeds.values()),  # of what the rails alone carry together
        "shares": {rail: together.share(rail) for rail in found.case.rails},
        "bandwidth_shares": {rail: speed / sum(speeds.values()) for rail, speed in speeds.items()},
        "runs": len(together.seconds),
        "wrong": sum(row.wrong for row in rows.values()),
    }


def threshold(rows: Sequence[Mapping[str, Any]]) -> int | None:
    """Return the least size from which on every size is split; none if the largest is not."""
    found = None
    for row in reversed(rows):
        if max(row["shares"].values()) >= 0.995:
            break
        found = row["bytes"]
    return found


# ------------------------------------------------------------ how quickly it is learnt


def trace(found: Found) -> dict[str, Any]:
    """Return a trace, cut into phases at the changes of rates."""
    last = found.case.rails[-1]
    edges = [0, *(place + 1 for place in found.changed_after), len(found.calls)]
    names = ["cold start", *(f"{last} at {rate / 1e6:g} Mbit/s" for _, _, rate in found.case.changes)]
    return {
        **_case(found),
        "bytes": found.case.plan.sizes[0],
        "rail": last,
        "phases": [
            {"what": name, "from_call": begin, **_phase(found.calls[begin:end], last)}
            for name, (begin, end) in zip(names, pairwise(edges), strict=True)
        ],
        "shares": [call.shares.get(last, 0.0) for call in found.calls],
        "time_us": [call.seconds * 1e6 for call in found.calls],
    }


def _phase(calls: Sequence[Call], rail: str) -> dict[str, Any]:
    shares = [call.shares.get(rail, 0.0) for call in calls]
    final = statistics.median(shares[-10:])
    return {
        "final_share": final,
        "calls": len(calls),
        "converged_after": converged_after(shares, final),
        "final_time_us": statistics.median([call.seconds for call in calls[-10:]]) * 1e6,
    }


def converged_after(shares: Sequence[float], final: float) -> int:
    """Return the calls before the first one from which on shares are near the final one, but for trials."""
    near = [abs(share - final) <= NEAR * final for share in shares]
    for place in range(len(near)):
        if near[place] and sum(near[place:]) >= STEADY * len(near[place:]):
            return place
    return len(near)


# ------------------------------------------------------------ what it costs


def overhead(found: Found) -> dict[str, Any]:
    """Return the time of small calls on all rails over that on the best one, block by block."""
    (rows,) = by_size(found).values()
    together = rows["+".join(found.case.rails)]
    best = min((rows[rail] for rail in found.case.rails), key=lambda row: row.median_s)
    ratios = np.array(together.seconds) / np.array(best.seconds)
    return {
        **_case(found),
        "bytes": together.bytes,
        "blocks": len(together.seconds),
        "calls_per_block": found.case.plan.calls,
        "best_rail": best.contender,
        "best_us": best.median_s * 1e6,
        "time_us": together.median_s * 1e6,
        "overhead": statistics.median(ratios) - 1,
        "wrong": together.wrong + sum(row.wrong for row in rows.values()),
    }


# ------------------------------------------------------------ claims


def claims(found: Sequence[Found]) -> list[Claim]:
    """Return every claim that what was run can show."""
    stated: list[Claim] = []
    for each in found:
        if each.case.part in ("sizes", "thresholds"):
            stated += _sweep_claims(each, sweep(each))
        elif each.case.part == "convergence":
            for phase in trace(each)["phases"]:
                calls = phase["converged_after"]
                claim = f"{phase['what']}: split within 5 % of its final value"
                stated.append(
                    Claim(claim, each.case.name, calls, f"<= {WITHIN_CALLS} calls", calls <= WITHIN_CALLS)
                )
        else:
            cost = overhead(each)["overhead"]
            claim = f"overhead at {each.case.plan.sizes[0]} bytes over the best rail alone"
            stated.append(Claim(claim, each.case.name, cost, f"<= {OVERHEAD}", cost <= OVERHEAD))
    return [*stated, *_growth(found)]


def _sweep_claims(found: Found, of: Mapping[str, Any]) -> list[Claim]:
    name, rows = found.case.name, of["rows"]
    least = min(row["speedup"] for row in rows)
    stated = [
        Claim("never slower than the best rail alone", name, least, f">= {NEVER_BELOW}", least >= NEVER_BELOW)
    ]
    large = [row for row in rows if row["bytes"] >= LARGE_BYTES]
    if large and found.case.part == "sizes":
        if len(set(found.case.rates_bps)) == 1 and len(found.case.kinds) == 2:
            speedup = min(row["speedup"] for row in large)
            stated.append(Claim("speedup from 4 MiB on", name, speedup, f">= {SPEEDUP}", speedup >= SPEEDUP))
        else:
            part = min(row["of_sum"] for row in large)
            stated.append(Claim("of the sum of the single rails", name, part, f">= {OF_SUM}", part >= OF_SUM))
    second = found.case.rails[1]
    off = abs(of["second_share_at_largest"] - of["bandwidth_shares"][second])
    stated.append(
        Claim("share of the second rail off the bandwidth ratio", name, off, f"<= {POINTS}", off <= POINTS)
    )
    return stated


def _growth(found: Sequence[Found]) -> list[Claim]:
    """Return whether the threshold of ina+tcp grows with the number of hosts."""
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
    return [
        Claim(
            "threshold grows with the hosts",
            f"ina+tcp, bytes by hosts {hosts}",
            ordered[-1] / ordered[0],
            "> 1",
            grows,
        )
    ]


# ------------------------------------------------------------ lines


def lines(found: Found) -> list[str]:
    """Return a case for people."""
    case = found.case
    if case.part == "convergence":
        return [
            f"{phase['what']:<24} split {phase['final_share']:>6.1%} on {case.rails[-1]} after "
            f"{phase['converged_after']} calls, {phase['final_time_us']:.0f} us"
            for phase in trace(found)["phases"]
        ]
    if case.part == "overhead":
        cost = overhead(found)
        return [
            f"{cost['bytes']} bytes: {cost['time_us']:.1f} us, {cost['best_rail']} alone "
            f"{cost['best_us']:.1f} us: {cost['overhead']:+.1%}"
        ]
    titles = ("bytes", "time (us)", *(f"{rail} (us)" for rail in case.rails), "speedup", "% of sum")
    text = ["".join(title.rjust(12) for title in titles) + "  share per rail  #wrong"]
    for row in sweep(found)["rows"]:
        alone = [f"{row['alone_us'][rail]:.0f}" for rail in case.rails]
        values = (str(row["bytes"]), f"{row['time_us']:.0f}", *alone, f"{row['speedup']:.2f}")
        shares = "  ".join(f"{rail} {share:.1%}" for rail, share in row["shares"].items())
        text.append(
            "".join(value.rjust(12) for value in (*values, f"{row['of_sum']:.1%}"))
            + f"  {shares}  {row['wrong']}"
        )
    return text


_AS_ROW = {"sizes": sweep, "thresholds": sweep, "convergence": trace, "overhead": overhead}  # by part
