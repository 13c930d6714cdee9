# SPDX-License-Identifier: Apache-2.0
"""The benchmark's rows: as text in the columns of nccl-tests, and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from railweave.experiments import statistics
from railweave.experiments.allreduce.run import BASELINES, BenchOptions, BenchResult, Row
from railweave.experiments.problem import REDUCING

WIDTHS = (12, 12, 8, 7, 6, 11, 11, 10, 10, 8, 8)
TITLES = ("size", "count", "type", "redop", "root", "time", "p99", "algbw", "busbw", "#wrong", "%limit")
UNITS = ("(B)", "(elements)", "", "", "", "(us)", "(us)", "(Mbit/s)", "(Mbit/s)", "", "")

VOLUMES = {
    "all_reduce": "a ring carries 2(n-1)/n of the tensor",
    "reduce_scatter": "size is all shards, count one; a ring carries (n-1)/n of size, a switch all of it",
    "all_gather": "size is all shards, count one; a ring carries (n-1)/n of size, a switch all of it",
    "broadcast": "every link carries the tensor",
}


def header(options: BenchOptions) -> str:
    """Return the lines above the rows, in the style of nccl-tests."""
    planes = ", ".join(
        f"{plane.name} {plane.rate_bps / 1e6:g} Mbit/s" if plane.rate_bps else f"{plane.name} unshaped"
        for plane in options.topology.planes
    )
    measurement = options.measurement
    timed = "last rank's, after a common start" if measurement.meets else "mean of the ranks"
    lines = [
        f"# {len(options.topology.hosts)} hosts, {options.topology.name}: {planes}; "
        f"switch {options.switch_target}",
        f"# {measurement.iters} runs after {measurement.warmup} of warm-up; time is the median, a run's time "
        f"the {timed}; "
        + ("every element of every run is checked" if measurement.check else "nothing is checked"),
        f"# %limit: algbw by what the links allow, headers included; {VOLUMES[measurement.collective]}",
        _join(TITLES) + "  share per rail",
        _join(UNITS),
    ]
    return "\n".join(lines)


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
        "n/a" if row.wrong < 0 else str(row.wrong),
        "-" if fraction is None else f"{fraction:.1%}",
    )
    return f"{_join(values)}  {shares_text(row)}"


def shares_text(row: Row) -> str:
    """Return `ina 0.50  tcp 0.50`, or the baseline's name."""
    if row.rails[0] in BASELINES:
        return row.rails[0]
    return "  ".join(
        f"{rail} {share:.2f}" for rail, share in row.shares.items() if share or len(row.rails) == 1
    )


def comparisons(result: BenchResult) -> list[str]:
    """Return, by size, all rails' bandwidth relative to the sum of each alone, and to the baselines."""
    by_rails: dict[tuple[str, ...], dict[int, Row]] = {}
    for row in result.rows:
        by_rails.setdefault(tuple(row.rails), {})[row.bytes] = row
    together = by_rails[tuple(result.options.rails)]
    lines = []
    if result.options.each_alone and len(result.options.rails) > 1:
        for size, row in together.items():
            alone = sum(by_rails[rail,][size].algbw_bps for rail in result.options.rails)
            lines.append(f"{size} B: all rails together {row.algbw_bps / alone:.1%} of the sum of each alone")
    for baseline in result.options.baselines:
        version = result.versions.get(baseline, "")
        for size, row in together.items():
            ratio = by_rails[baseline,][size].median_s / row.median_s
            lines.append(f"{size} B: {ratio:.2f} times as fast as {baseline} {version}".rstrip())
    return lines


def as_json(result: BenchResult) -> dict[str, Any]:
    """Return the result as JSON values; rows of baselines, and of rails alone, have keys beside `rows`."""
    options = result.options

    def rows(rails: Sequence[str]) -> list[dict[str, Any]]:
        return [_row_json(row) for row in result.rows if tuple(row.rails) == tuple(rails)]

    return {
        "hosts": len(options.topology.hosts),
        "topology": options.topology.name,
        "switch": options.switch_target,
        "collective": options.measurement.collective,
        "rails": list(options.rails),
        "rows": rows(options.rails),
        # Not in the schema:
        "ok": result.ok,
        "alone": {rail: rows([rail]) for rail in options.rails} if options.each_alone else {},
        "baselines": {
            name: {"version": result.versions.get(name, ""), "rows": rows([name])}
            for name in options.baselines
        },
    }


def _row_json(row: Row) -> dict[str, Any]:
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
        "wrong": row.wrong if row.wrong >= 0 else None,
        "limit_bps": row.limit_bps or None,
        "limit_fraction": row.limit_fraction,
        "shares": dict(row.shares),
    }


def _join(values: Sequence[str]) -> str:
    return "".join(value.rjust(width) for value, width in zip(values, WIDTHS, strict=True))
