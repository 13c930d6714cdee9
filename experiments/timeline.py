# SPDX-License-Identifier: Apache-2.0
"""The timeline of a run, as a Chrome trace (open it in Perfetto) and as a picture."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from railweave.topologies.draw import COLOURS

COMPUTE_COLOUR = "#999999"
FIRST_STEPS = 5  # drawn one by one
PAUSE_S = 0.1


@dataclass(frozen=True)
class Span:
    """One piece of work. Times are in seconds since the start of the run."""

    rank: int
    row: str  # a rail's name, or "compute"
    step: int  # number of a training step, or index of a call
    start_s: float
    end_s: float
    payload_bytes: int = 0


def colour(row: str) -> tuple[float, float, float]:
    """Return the colour of a row. A rail has the colour of its kind; further rails of a kind are paler."""
    kind = row.rstrip("0123456789")
    base = COLOURS.get(kind, COMPUTE_COLOUR)
    paleness = 0.25 * (int(row[len(kind) :] or 0) % 4)
    red, green, blue = (int(base[place : place + 2], 16) / 255 for place in (1, 3, 5))
    return (red + (1 - red) * paleness, green + (1 - green) * paleness, blue + (1 - blue) * paleness)


def write_files(
    spans: Sequence[Span],
    rows: Sequence[str],
    out: Path,
    title: str,
    events: Sequence[tuple[float, str]],
    unit: str = "call",
) -> dict[str, Path]:
    """Write the Chrome trace and the picture of a run. Return their paths by description."""
    picture, trace = out / "timeline.png", out / "trace.json"
    write_trace(spans, rows, trace)
    draw(spans, rows, picture, title, unit, events)
    return {"timeline": picture, "Chrome trace (open in Perfetto)": trace}


def write_trace(spans: Sequence[Span], rows: Sequence[str], path: Path) -> None:
    """Write a Chrome trace with a process per rank. `rows` is the order of its rows."""
    events: list[dict[str, Any]] = []
    for rank in sorted({span.rank for span in spans}):
        events.append({"ph": "M", "name": "process_name", "pid": rank, "args": {"name": f"rank {rank}"}})
        for number, row in enumerate(rows):
            events.append(
                {"ph": "M", "name": "thread_name", "pid": rank, "tid": number, "args": {"name": row}}
            )
    for span in spans:
        events.append(
            {
                "ph": "X",
                "name": f"step {span.step}",
                "cat": span.row,
                "pid": span.rank,
                "tid": rows.index(span.row),
                "ts": round(span.start_s * 1e6, 1),
                "dur": round((span.end_s - span.start_s) * 1e6, 1),
                "args": {"bytes": span.payload_bytes} if span.payload_bytes else {},
            }
        )
    path.write_text(json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}))


def draw(
    spans: Sequence[Span],
    rows: Sequence[str],
    path: Path,
    title: str,
    unit: str = "call",
    events: Sequence[tuple[float, str]] = (),
) -> None:
    """Draw the first steps of every rank, and each rail's throughput over the run (mean of ranks).

    `unit` is the word for a step. `events` are texts with their times on the spans' clock.
    """
    import matplotlib  # noqa: PLC0415 - a second to import

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt  # noqa: PLC0415

    ranks = sorted({span.rank for span in spans})
    height = 1.6 + 0.16 * len(ranks) * len(rows)
    figure, (above, below) = plt.subplots(
        2, 1, figsize=(11, height + 3), height_ratios=[height, 3], layout="constrained"
    )
    figure.suptitle(title, parse_math=False)  # a $ in a command is not a formula
    first = sorted({span.step for span in spans})[:FIRST_STEPS]
    _draw_rows(above, [span for span in spans if span.step in first], ranks, rows)
    above.set_title(f"the first {len(first)} {unit}s, and each rail's part in them", fontsize=10)
    _draw_throughput(below, spans, rows)
    _draw_events(below, events)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def _draw_rows(axes: Any, spans: Sequence[Span], ranks: Sequence[int], rows: Sequence[str]) -> None:
    places = {
        (rank, row): -(rank * (len(rows) + 1) + number) for rank in ranks for number, row in enumerate(rows)
    }
    for row in rows:
        shown = [span for span in spans if span.row == row]
        axes.barh(
            [places[span.rank, row] for span in shown],
            [(span.end_s - span.start_s) * 1e3 for span in shown],
            left=[span.start_s * 1e3 for span in shown],
            height=0.8,
            color=colour(row),
            edgecolor="white",
            linewidth=0.5,
            label=row,
        )
    axes.set_yticks(
        [places[rank, rows[len(rows) // 2]] for rank in ranks], [f"rank {rank}" for rank in ranks]
    )
    axes.set_xlabel("time in ms")
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=9, frameon=False)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)


def _draw_throughput(axes: Any, spans: Sequence[Span], rows: Sequence[str]) -> None:
    for row in rows:
        by_step: dict[int, list[Span]] = {}
        for span in spans:
            if span.row == row and span.payload_bytes:
                by_step.setdefault(span.step, []).append(span)
        if not by_step:
            continue
        times: list[float] = []
        rates: list[float] = []
        for group in sorted(by_step.values(), key=lambda group: min(span.start_s for span in group)):
            start, end = min(span.start_s for span in group), max(span.end_s for span in group)
            if times and start - times[-1] > PAUSE_S:  # no line across a time without traffic
                times.append(start)
                rates.append(math.nan)
            bps = [span.payload_bytes * 8 / max(span.end_s - span.start_s, 1e-9) for span in group]
            times += [start, end]
            rates += [sum(bps) / len(bps) / 1e6] * 2
        axes.plot(times, rates, color=colour(row), label=row, linewidth=1.4)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("time in s")
    axes.set_ylabel("Mbit/s per host")
    axes.set_title("tensor bits reduced per second while the rail was busy", fontsize=10)
    axes.grid(axis="y", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)


def _draw_events(axes: Any, events: Sequence[tuple[float, str]]) -> None:
    for at_s, text in events:
        axes.axvline(at_s, color="black", linewidth=0.8, linestyle=":")
        place = {"xycoords": ("data", "axes fraction"), "rotation": 90, "ha": "right"}
        axes.annotate(text, (at_s, 0.03), **place, fontsize=7, parse_math=False)
