# SPDX-License-Identifier: Apache-2.0
"""The rows of a sweep, as text and as JSON."""

from __future__ import annotations

import os
from typing import Any

from railweave.experiments import statistics, tables
from railweave.experiments.allreduce.run import RAILWEAVE, Row, Sweep
from railweave.experiments.problem import BOTH, REDUCING, SCALES
from railweave.experiments.records import CPU, LINKS
from railweave.experiments.scenario import EACH, LAST, Scenario

LINES = tables.Lines((("size", "B", 8), *tables.SPEED), "share per rail (%)")
BUSBW = {
    "all_reduce": "busbw: algbw x 2(n-1)/n, as in nccl-tests",
    "reduce_scatter": "size: all shards; busbw: algbw x (n-1)/n, as in nccl-tests",
    "all_gather": "size: all shards; busbw: algbw x (n-1)/n, as in nccl-tests",
    "broadcast": "busbw: the same as algbw",
    BOTH: "size: all shards of each collective; busbw: algbw x 2(n-1)/n",
}
VERIFIED = {
    EACH: "the results of all calls are compared",
    LAST: f"the results of {SCALES} calls per size are compared, after the timed calls (--verify each: all)",
}
BOTTLENECKS = {
    CPU: "The processors were the bottleneck of {runs}: the times depend on this machine. With a lower "
    "--rate or fewer hosts, the links are the bottleneck.",
    LINKS: "The links were the bottleneck of {runs}: the times hold for such links on other machines, too.",
}


def header(scenario: Scenario) -> str:
    """Return the lines above the rows."""
    work = scenario.workload
    op = f", {work.op}" if work.collective in REDUCING else ""
    root = f", root {work.root}" if work.collective == "broadcast" else ""
    what = f"{work.collective} of {work.dtype}{op}{root}"
    hosts = f"{len(scenario.network.hosts)} hosts, topology {scenario.network.name}"
    first = f"{what}: {hosts}, switch {scenario.switch}"
    return "\n".join([tables.notes(first, *legend(scenario)), LINES.titles])


def legend(scenario: Scenario) -> list[str]:
    """Return the meaning of the columns."""
    work = scenario.workload
    rounds = f" in each of {scenario.repetitions} rounds" if scenario.repetitions > 1 else ""
    return [
        f"rails: {rates_text(scenario)}",
        f"{work.iterations} calls per size{rounds}, after {work.warmup} or more warm-up calls (until times "
        "are steady)",
        "time of a call: from the start of the last rank to the end of the last rank, by CLOCK_MONOTONIC",
        f"buffers: the same for all calls of a size, {'in place' if work.in_place else 'out of place'}",
        "algbw: bits of the tensor by the median time",
        BUSBW[work.collective],
        "%limit: algbw in percent of the physical limit of the links, headers included",
        f"#wrong: wrong elements; {VERIFIED[scenario.verify]}",
        *_crowded(len(scenario.network.hosts)),
    ]


def _crowded(hosts: int) -> list[str]:
    """Return a note if ranks share processors."""
    cores = os.cpu_count() or 1
    if hosts <= cores:
        return []
    return [
        f"{hosts} ranks share {cores} processors: times of small calls depend on how this machine schedules "
        "the ranks' threads, more for contenders with many threads"
    ]


def rates_text(scenario: Scenario) -> str:
    """Return `ina 100 Mbit/s, tcp unshaped`."""
    return ", ".join(
        f"{plane.name} {plane.rate_bps / 1e6:g} Mbit/s" if plane.rate_bps else f"{plane.name} unshaped"
        for plane in scenario.network.planes
    )


def line(row: Row) -> str:
    """Return one row, with the contender's name where the shares do not tell it."""
    name = "" if set(row.contender.split("+")) == set(row.shares) else row.contender
    words = " ".join(filter(None, (tables.shares(row.shares), name)))
    return LINES.row((str(row.bytes), *speed(row)), words)


def speed(row: Row) -> tuple[str, ...]:
    """Return the cells of the columns `tables.SPEED`."""
    return (
        *(tables.microseconds(time) for time in (row.mean_s, row.median_s, row.p99_s)),
        f"{row.algbw_bps / 1e6:.1f}",
        f"{row.busbw_bps / 1e6:.1f}",
        percent(row.limit_fraction),
        str(row.wrong),
    )


def percent(fraction: float | None) -> str:
    """Return `95.1%`, or `-` for none."""
    return "-" if fraction is None else f"{fraction:.1%}"


def comparisons(sweep: Sweep) -> list[str]:
    """Return, by size, the bandwidth of all rails relative to each rail alone and to baselines."""
    first, *others = sweep.scenario.contenders
    if first.kind != RAILWEAVE:
        return []
    rows, lines = sweep.rows, []
    alone = [each for each in others if each.kind == RAILWEAVE]
    if alone and [each.rails for each in alone] == [(rail,) for rail in sweep.scenario.planes_of(first)]:
        for place, row in enumerate(rows[first.name]):
            fraction = row.algbw_bps / sum(rows[each.name][place].algbw_bps for each in alone)
            lines.append(
                f"{row.bytes} B: all rails together reach {fraction:.1%} of the sum of the rails alone"
            )
    for other in others:
        if other.kind != RAILWEAVE:
            name = f"{other.name} {sweep.version(other.kind)}".rstrip()
            for place, row in enumerate(rows[first.name]):
                ratio = rows[other.name][place].median_s / row.median_s
                lines.append(f"{row.bytes} B: {ratio:.2f} times as fast as {name}")
    return lines


def bottlenecks(sweep: Sweep) -> list[str]:
    """Return the known bottlenecks of the runs and their consequences."""
    lines = []
    for kind, text in BOTTLENECKS.items():
        if limited := [record.contender for record in sweep.records if record.bottleneck == kind]:
            who = ", ".join(dict.fromkeys(limited))
            lines.append(text.format(runs=f"{who} (runs: {len(limited)} of {len(sweep.records)})"))
    return lines


def as_json(sweep: Sweep) -> dict[str, Any]:
    """Return the result as JSON values; rows of baselines, and of rails alone, have keys beside `rows`."""
    scenario, rows = sweep.scenario, {name: list(map(row_json, of)) for name, of in sweep.rows.items()}
    first, *others = scenario.contenders
    return {
        "hosts": len(scenario.network.hosts),
        "topology": scenario.network.name,
        "switch": scenario.switch,
        "collective": scenario.workload.collective,
        "rails": list(scenario.planes_of(first)),
        "rows": rows[first.name],
        # Not in the schema:
        "ok": sweep.ok,
        "bottlenecks": {record.contender: record.bottleneck for record in sweep.records},
        "alone": {other.name: rows[other.name] for other in others if other.kind == RAILWEAVE},
        "baselines": {
            other.name: {"version": sweep.version(other.kind), "rows": rows[other.name]}
            for other in others
            if other.kind != RAILWEAVE
        },
    }


def row_json(row: Row) -> dict[str, Any]:
    """Return a row as JSON values."""
    work = row.work
    return {
        "bytes": row.bytes,
        "dtype": work.dtype,
        "op": work.op if work.collective in REDUCING else None,
        "root": work.root if work.collective == "broadcast" else None,
        "time_us_mean": row.mean_s * 1e6,
        "time_us_median": row.median_s * 1e6,
        "time_us_p99": row.p99_s * 1e6,
        "time_us_interval": [bound * 1e6 for bound in statistics.interval(row.seconds)],  # of the median
        "times_us": [round(seconds * 1e6, 1) for seconds in row.seconds],
        "algbw_bps": row.algbw_bps,
        "busbw_bps": row.busbw_bps,
        "wrong": row.wrong,
        "limit_bps": row.limit_bps or None,
        "limit_fraction": row.limit_fraction,
        "shares": dict(row.shares),
    }
