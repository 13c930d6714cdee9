# SPDX-License-Identifier: Apache-2.0
"""One sweep per number of hosts. A ring's latency grows with this number; in-network latency should not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from railweave.experiments import tables
from railweave.experiments.allreduce import report
from railweave.experiments.allreduce.run import Row, Sweep
from railweave.experiments.errors import OptionError
from railweave.experiments.figures import drawing
from railweave.experiments.measures import size_text
from railweave.experiments.scenario import Scenario
from railweave.topologies.planes import MAX_FAN_IN

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LINES = tables.Lines(
    (("hosts", "", 5), ("size", "B", 9), *tables.SPEED, ("cpu", "ms", 7), ("memory", "MiB", 7)), "contender"
)


def topology(hosts: int) -> str:
    """Return a topology for `hosts` hosts.

    It has one switch per plane if the hosts fit. Otherwise it has as few racks of equal size as possible.
    Raises OptionError if no racks of equal size exist.
    """
    if hosts <= MAX_FAN_IN:
        return "planes"
    for racks in range(2, MAX_FAN_IN + 1):
        if hosts % racks == 0 and hosts // racks <= MAX_FAN_IN:
            return f"leaf-spine:racks={racks},hosts={hosts // racks},spines=1"
    raise OptionError(
        f"--hosts {hosts} does not divide into racks of equal size",
        f"up to {MAX_FAN_IN} racks of up to {MAX_FAN_IN} hosts",
        "choose another number",
    )


def curves(sweeps: Sequence[Sweep]) -> dict[tuple[str, int], list[Row]]:
    """Return the rows of each (contender, size in bytes), in the order of `sweeps`."""
    found: dict[tuple[str, int], list[Row]] = {}
    for sweep in sweeps:
        for row in (row for rows in sweep.rows.values() for row in rows):
            found.setdefault((row.contender, row.bytes), []).append(row)
    return found


def header(scenario: Scenario) -> str:
    """Return the lines above the rows. The scenario may have any number of hosts."""
    cost = "cpu: processor time of a rank per call; memory: of the rank's process"
    return "\n".join([tables.notes(*report.legend(scenario), cost), LINES.titles])


def line(row: Row) -> str:
    """Return a row as text."""
    values = (
        str(row.ranks),
        str(row.bytes),
        *report.speed(row),
        f"{row.cpu_s * 1e3:.2f}",
        f"{row.memory_bytes / 2**20:.0f}",
    )
    return LINES.row(values, row.contender)


def as_json(sweeps: Sequence[Sweep]) -> dict[str, Any]:
    """Return the curves as JSON values. Times are in microseconds."""
    return {
        "rows": [
            {
                "contender": contender,
                "version": sweeps[0].version(contender) or None,
                "bytes": size,
                "points": [
                    {
                        "hosts": row.ranks,
                        "time_us_mean": row.mean_s * 1e6,
                        "time_us_median": row.median_s * 1e6,
                        "time_us_p99": row.p99_s * 1e6,
                        "limit_fraction": row.limit_fraction,
                        "algbw_mbit": row.algbw_bps / 1e6,
                        "cpu_us_per_call": row.cpu_s * 1e6,
                        "memory_bytes": row.memory_bytes,
                        "wrong": row.wrong,
                    }
                    for row in rows
                ],
            }
            for (contender, size), rows in curves(sweeps).items()
        ],
        "ok": all(sweep.ok for sweep in sweeps),
    }


def draw(sweeps: Sequence[Sweep]) -> Figure:
    """Draw the median time by number of hosts, with a bar to the 99th percentile, in a panel per size."""
    found = curves(sweeps)
    sizes = sorted({size for _, size in found})
    figure, panels = drawing.sheet(len(sizes))
    for panel, size in zip(panels, sizes, strict=True):
        for contender, rows in ((who, rows) for (who, of), rows in found.items() if of == size):
            medians = [row.median_s * 1e3 for row in rows]
            tails = [(row.p99_s - row.median_s) * 1e3 for row in rows]
            bars, colour = [[0.0] * len(tails), tails], drawing.colour(contender)
            hosts = [row.ranks for row in rows]
            panel.errorbar(hosts, medians, bars, marker="o", capsize=3, label=contender, color=colour)
        drawing.decades(panel)
        drawing.ticks(panel, [len(sweep.scenario.network.hosts) for sweep in sweeps], "hosts", "linear")
        panel.set_title(size_text(size))
        panel.set_ylabel("time (ms)")
        panel.legend()
    return figure
