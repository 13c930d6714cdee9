# SPDX-License-Identifier: Apache-2.0
"""The benchmark's rows: as text in the columns of nccl-tests, and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from railweave.experiments import statistics
from railweave.experiments.allreduce.run import BASELINES, RAILWEAVE, Row, Sweep
from railweave.experiments.problem import REDUCING
from railweave.experiments.scenario import Scenario

WIDTHS = (12, 12, 8, 7, 6, 11, 11, 10, 10, 8, 8)
TITLES = ("size", "count", "type", "redop", "root", "time", "p99", "algbw", "busbw", "#wrong", "%limit")
UNITS = ("(B)", "(elements)", "", "", "", "(us)", "(us)", "(Mbit/s)", "(Mbit/s)", "", "")

VOLUMES = {
    "all_reduce": "a ring carries 2(n-1)/n of the tensor",
    "reduce_scatter": "size is all shards, count one; every link carries (n-1)/n of size",
    "all_gather": "size is all shards, count one; every link carries (n-1)/n of size",
    "broadcast": "every link carries the tensor",
}


def header(scenario: Scenario) -> str:
    """Return the lines above the rows, in the style of nccl-tests."""
    network, work = scenario.network, scenario.workload
    calls = f"{work.iterations} calls" + (
        f" in each of {scenario.repetitions} rounds" if scenario.repetitions > 1 else ""
    )
    lines = [
        f"# {len(network.hosts)} hosts, {network.name}: {rates_text(scenario)}; switch {scenario.switch}",
        f"# {calls} after {work.warmup} of warm-up, or more until times are steady; time "
        "is the median, from the last rank's start to the last end; every element of every result is checked",
        f"# %limit: algbw by what the links allow, headers included; {VOLUMES[work.collective]}",
        _join(TITLES) + "  share per rail",
        _join(UNITS),
    ]
    return "\n".join(lines)


def rates_text(scenario: Scenario) -> str:
    """Return `ina 100 Mbit/s, tcp unshaped`."""
    return ", ".join(
        f"{plane.name} {plane.rate_bps / 1e6:g} Mbit/s" if plane.rate_bps else f"{plane.name} unshaped"
        for plane in scenario.network.planes
    )


def line(row: Row) -> str:
    """Return one row."""
    fraction = row.limit_fraction
    values = (
        str(row.bytes),
        str(row.count),
        row.dtype.removesuffix("32") if row.dtype == "float32" else row.dtype,
        row.op if row.collective in REDUCING else "none",
        str(row.root),
        f"{row.median_s * 1e6:.1f}",
        f"{row.p99_s * 1e6:.1f}",
        f"{row.algbw_bps / 1e6:.1f}",
        f"{row.busbw_bps / 1e6:.1f}",
        str(row.wrong),
        "-" if fraction is None else f"{fraction:.1%}",
    )
    return f"{_join(values)}  {shares_text(row)}"


def shares_text(row: Row) -> str:
    """Return `ina 0.50  tcp 0.50`, or the contender's name where it has no shares."""
    return "  ".join(f"{rail} {share:.2f}" for rail, share in row.shares.items()) or row.contender


def comparisons(sweep: Sweep) -> list[str]:
    """Return, by size, all rails' bandwidth relative to the sum of each alone, and to the baselines."""
    rows, lines = sweep.rows, []
    together = rows.pop(sweep.striped)
    baselines = [name for name in rows if name in BASELINES]
    alone = [name for name in rows if name not in BASELINES]
    for place, row in enumerate(together):
        if alone:
            fraction = row.algbw_bps / sum(rows[name][place].algbw_bps for name in alone)
            lines.append(f"{row.bytes} B: all rails together {fraction:.1%} of the sum of each alone")
    for name in baselines:
        for place, row in enumerate(together):
            ratio = rows[name][place].median_s / row.median_s
            lines.append(f"{row.bytes} B: {ratio:.2f} times as fast as {name} {sweep.version(name)}".rstrip())
    return lines


def bottlenecks(sweep: Sweep) -> list[str]:
    """Return, by contender and round, what limited it, and what the processors did."""
    several = sweep.scenario.repetitions > 1
    return [
        f"{record.contender}{f', round {record.round + 1}' if several else ''}: "
        f"bottleneck {record.bottleneck}; cores {record.cpu.idle:.0%} idle, "
        f"{record.cpu.stolen:.0%} stolen, {record.cpu.run_queue:.1f} threads runnable"
        for record in sweep.records
        if record.cpu is not None
    ]


def as_json(sweep: Sweep) -> dict[str, Any]:
    """Return the result as JSON values; rows of baselines, and of rails alone, have keys beside `rows`."""
    scenario, rows = sweep.scenario, {name: list(map(row_json, of)) for name, of in sweep.rows.items()}
    first, *others = scenario.contenders
    return {
        "hosts": len(scenario.network.hosts),
        "topology": scenario.network.name,
        "switch": scenario.switch,
        "collective": scenario.workload.collective,
        "rails": list(first.rails),
        "rows": rows[first.name],
        # Not in the schema:
        "ok": sweep.ok,
        "bottlenecks": {record.contender: record.bottleneck for record in sweep.records},
        "alone": {other.name: rows[other.name] for other in others if other.kind == RAILWEAVE},
        "baselines": {
            other.name: {"version": sweep.version(other.name), "rows": rows[other.name]}
            for other in others
            if other.kind != RAILWEAVE
        },
    }


def row_json(row: Row) -> dict[str, Any]:
    """Return a row as JSON values."""
    return {
        "bytes": row.bytes,
        "dtype": row.dtype,
        "op": row.op if row.collective in REDUCING else None,
        "root": row.root if row.root >= 0 else None,
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


def _join(values: Sequence[str]) -> str:
    return "".join(value.rjust(width) for value, width in zip(values, WIDTHS, strict=True))
