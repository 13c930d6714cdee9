# SPDX-License-Identifier: Apache-2.0
"""The failover table, as text, as JSON and as a picture."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.table import Table

from railweave.experiments import tables
from railweave.experiments.failover.figures import Curve
from railweave.experiments.failover.run import FailoverResult
from railweave.experiments.failover.values import Trial
from railweave.experiments.fault_kinds import KINDS
from railweave.experiments.statistics import median, p99

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MS = 1000.0
NOTE = """
usual, pause    longest time between two completed calls on any rank: before the fault; and after it,
                readmission included
reroute         from the fault until every rank had completed a call without the rail
readmit         from the repair until every rank had completed a slice on the rail again
during, after   throughput of tensors, relative to that before the fault
Times are in ms; pause, reroute and readmit are median/p99 of the trials."""
SPREAD = ("pause", "reroute", "readmit")
TIMES = {  # name in the rows, and field of Trial or Figures
    **{name: f"{name}_s" for name in (*SPREAD, "return_pause", "formed")},
    "error_after": "error_s",
    "fault": "inject_s",
}
COLUMNS = 3  # of the picture
INTERNAL = ("fault", "rail", "window", "curve")  # fields that a trial's JSON lacks


def table(result: FailoverResult) -> Table:
    """Return a row per fault and rail."""
    options = result.options
    planes = ", ".join(plane.name for plane in options.topology.planes)
    title = (
        f"{len(options.topology.hosts)} hosts, rails {planes}: {options.collective} of "
        f"{options.bytes >> 10} KiB of {options.dtype} back to back; trials per fault: {options.trials}"
    )
    columns = ("fault", "rail", "ok", "usual", *SPREAD, "during", "after", "errors", "#wrong")
    rows = [
        (
            row["fault"],
            row["rail"],
            f"{row['expected']}/{row['trials']}",
            _text(".0f", row["usual_ms"]),
            *(_text(".0f", row[f"{name}_p50_ms"], row[f"{name}_ms"]) for name in SPREAD),
            _text(".0%", row["during_ratio"]),
            _text(".0%", row["after_ratio"]),
            str(row["errors"]),
            str(row["wrong"]),
        )
        for row in map(_row, _grouped(result.trials))
    ]
    return tables.table(columns, rows, left=2, title=title, box=None)


def odd(result: FailoverResult) -> list[str]:
    """Return a line for each trial that did not end as expected."""
    return [line(trial) for trial in result.trials if not trial.ok]


def line(trial: Trial) -> str:
    """Return one line on a trial, shown while the experiment runs."""
    found = trial.figures
    if found is None:
        times = {"error after": trial.error_s, "formed again": trial.formed_s}
    else:
        times = {
            "pause": found.pause_s,
            "rerouted after": found.reroute_s,
            "readmitted after": found.readmit_s,
        }
    reported = [f"{name} {seconds * MS:.0f} ms" for name, seconds in times.items() if seconds is not None]
    if found is not None and not found.used:
        reported.append("the rail carried nothing before the fault")
    if trial.others:
        reported.append(f"other rails that failed: {', '.join(trial.others)}")
    if trial.errors:
        reported.append(f"{len(trial.errors)} errors, the first: {trial.errors[0]}")
    words = [trial.outcome, *reported, f"{trial.wrong} wrong"]
    return f"{trial.fault}, {trial.rail} #{trial.number} ({trial.where}): " + "; ".join(words)


def curves(result: FailoverResult) -> dict[tuple[str, str], Curve]:
    """Return the throughput around the first trial of each fault of a rail, by fault and rail."""
    firsts = [trials[0] for trials in _grouped(result.trials)]
    return {(trial.fault, trial.rail): trial.curve for trial in firsts if trial.curve}


def draw(curves: Mapping[tuple[str, str], Curve]) -> Figure:
    """Draw each rail's throughput around a fault, a panel per fault and failing rail."""
    from railweave.experiments.figures import drawing  # noqa: PLC0415 - a second to import
    from railweave.experiments.figures.panels import Timeline, timeline  # noqa: PLC0415

    rows = -(-len(curves) // COLUMNS)
    figure, panels = drawing.sheet(min(COLUMNS, len(curves)), rows, height=Timeline.INCHES)
    for panel, (hit, curve) in zip(panels, curves.items(), strict=False):
        timeline(panel, asdict(curve))
        panel.set_title(", ".join(hit))
    for panel in panels[len(curves) :]:
        panel.set_axis_off()
    return figure


def caption(result: FailoverResult) -> str:
    """Return the caption of the picture."""
    options = result.options
    return (
        f"first of {options.trials} trials each; {len(options.topology.hosts)} hosts, "
        f"{options.collective} of {options.bytes >> 10} KiB {options.dtype}; "
        "shaded: from the fault to its repair"
    )


def as_json(result: FailoverResult) -> dict[str, Any]:
    """Return the rows as JSON values. Times are in ms: the 99th percentile, the median and the maximum."""
    options = result.options
    common = {
        "hosts": len(options.topology.hosts),
        "rails": [plane.name for plane in options.topology.planes],
        "rates_bps": [plane.rate_bps for plane in options.topology.planes],
        "collective": options.collective,
        "bytes": options.bytes,
        "dtype": options.dtype,
        "seed": options.seed,
        "outage_ms": options.outage_s * MS,
        "switch": options.lab.switch_target,
    }
    rows = [
        {**_row(trials), **common, "runs": [_run(trial) for trial in trials]}
        for trials in _grouped(result.trials)
    ]
    return {"ok": result.ok, "rows": rows}


def _grouped(trials: Sequence[Trial]) -> list[list[Trial]]:
    keys = dict.fromkeys((trial.fault, trial.rail) for trial in trials)
    return [[trial for trial in trials if (trial.fault, trial.rail) == key] for key in keys]


def _row(trials: Sequence[Trial]) -> dict[str, Any]:
    figures = [trial.figures for trial in trials if trial.figures is not None]
    flat = [{**asdict(trial), **(asdict(trial.figures) if trial.figures else {})} for trial in trials]

    def ratio(name: str) -> float | None:
        rates = [(each[name], each["before_bps"]) for each in map(asdict, figures)]
        return _median([rate / before for rate, before in rates if rate and before])

    times = {}
    for name, field in TIMES.items():
        values = [each[field] * MS for each in flat if each.get(field) is not None]
        times[f"{name}_ms"] = p99(values) if values else None
        times[f"{name}_p50_ms"] = _median(values)
        times[f"{name}_max_ms"] = max(values, default=None)
    return {
        "fault": trials[0].fault,
        "rail": trials[0].rail,
        **times,
        "usual_ms": _median([each.usual_s * MS for each in figures]),
        "wrong": sum(trial.wrong for trial in trials),
        "errors": sum(len(trial.errors) for trial in trials),
        "trials": len(trials),
        "expected": sum(trial.expected for trial in trials),
        "outcomes": Counter(trial.outcome for trial in trials),
        "rerouted": sum(each.reroute_s is not None for each in figures),
        "fail_stop": KINDS[trials[0].fault].fail_stop,
        "failures": sum(trial.failures for trial in trials),
        "failed_beside": Counter(rail for trial in trials for rail in trial.others),
        "unused": sum(not each.used for each in figures),
        "before_bps": _median([each.before_bps for each in figures]),
        "during_ratio": ratio("during_bps"),
        "after_ratio": ratio("after_bps"),
    }


def _run(trial: Trial) -> dict[str, Any]:
    return {name: value for name, value in asdict(trial).items() if name not in INTERNAL}


def _median(values: Sequence[float]) -> float | None:
    return median(values) if values else None


def _text(style: str, *values: float | None) -> str:
    return "-" if None in values else "/".join(format(value, style) for value in values)
