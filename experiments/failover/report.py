# SPDX-License-Identifier: Apache-2.0
"""The failover table, as text and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.table import Table

from railweave.experiments import tables
from railweave.experiments.failover.kinds import KINDS, OF_TREES
from railweave.experiments.failover.run import FailoverResult
from railweave.experiments.failover.values import Trial
from railweave.experiments.statistics import median, p99

MS = 1000.0
NOTE = """
usual, pause    longest time between two completed calls on any rank: before the fault; and after it,
                readmission included
reroute         from the fault until every rank had completed a call without the rail
readmit         from the repair until every rank had completed a slice on the rail again
during, after   throughput of tensors, relative to that before the fault
Times are in ms; pause, reroute and readmit are median/p99 of the trials."""
FAIL_STOP = {kind.name for kind in (*KINDS, *OF_TREES) if kind.fail_stop}
SPREAD = ("pause", "reroute", "readmit")


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
            _number(row["usual_ms"]),
            *(_spread(row, name) for name in SPREAD),
            _percent(row["during_ratio"]),
            _percent(row["after_ratio"]),
            str(row["errors"]),
            str(row["wrong"]),
        )
        for row in map(_row, _grouped(result.trials))
    ]
    return tables.table(columns, rows, left=2, title=title, box=None)


def odd(result: FailoverResult) -> list[str]:
    """Return a line for each trial that did not end as expected."""
    return [line(trial) for trial in result.trials if not trial.expected or trial.errors or trial.wrong]


def caption(result: FailoverResult) -> str:
    """Return the caption of the picture."""
    options = result.options
    return (
        f"first of {options.trials} trials each; {len(options.topology.hosts)} hosts, "
        f"{options.collective} of {options.bytes >> 10} KiB {options.dtype}; "
        "shaded: from the fault to its repair"
    )


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
    return {
        "ok": result.ok,
        "rows": [
            {**_row(trials), **common, "runs": [_run(trial) for trial in trials]}
            for trials in _grouped(result.trials)
        ],
    }


def _grouped(trials: Sequence[Trial]) -> list[list[Trial]]:
    keys = dict.fromkeys((trial.fault, trial.rail) for trial in trials)
    return [[trial for trial in trials if (trial.fault, trial.rail) == key] for key in keys]


def _row(trials: Sequence[Trial]) -> dict[str, Any]:
    found = [trial.figures for trial in trials if trial.figures is not None]
    ratios = {
        "during_ratio": [f.during_bps / f.before_bps for f in found if f.during_bps and f.before_bps],
        "after_ratio": [f.after_bps / f.before_bps for f in found if f.after_bps and f.before_bps],
    }
    return {
        "fault": trials[0].fault,
        "rail": trials[0].rail,
        **_times("pause", [f.pause_s for f in found]),
        **_times("reroute", [f.reroute_s for f in found if f.reroute_s is not None]),
        **_times("readmit", [f.readmit_s for f in found if f.readmit_s is not None]),
        **_times("return_pause", [f.return_pause_s for f in found]),
        **_times("error_after", [trial.error_s for trial in trials if trial.error_s is not None]),
        **_times("formed", [trial.formed_s for trial in trials if trial.formed_s is not None]),
        **_times("fault", [trial.inject_s for trial in trials]),
        "usual_ms": median([f.usual_s * MS for f in found]) if found else None,
        "wrong": sum(trial.wrong for trial in trials),
        "errors": sum(len(trial.errors) for trial in trials),
        "trials": len(trials),
        "expected": sum(trial.expected for trial in trials),
        "outcomes": dict(Counter(trial.outcome for trial in trials)),
        "rerouted": sum(f.reroute_s is not None for f in found),
        "fail_stop": trials[0].fault in FAIL_STOP,
        "failures": sum(trial.failures for trial in trials),
        "failed_beside": dict(Counter(rail for trial in trials for rail in trial.others)),
        "unused": sum(not f.used for f in found),
        "before_bps": median([f.before_bps for f in found]) if found else None,
        **{name: median(values) if values else None for name, values in ratios.items()},
    }


def _times(name: str, seconds: Sequence[float]) -> dict[str, float | None]:
    values = sorted(value * MS for value in seconds)
    if not values:
        return {f"{name}_ms": None, f"{name}_p50_ms": None, f"{name}_max_ms": None}
    return {f"{name}_ms": p99(values), f"{name}_p50_ms": median(values), f"{name}_max_ms": values[-1]}


def _run(trial: Trial) -> dict[str, Any]:
    return {name: value for name, value in asdict(trial).items() if name not in ("fault", "rail")}


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}"


def _spread(row: dict[str, Any], name: str) -> str:
    if row[f"{name}_ms"] is None:
        return "-"
    return f"{row[f'{name}_p50_ms']:.0f}/{row[f'{name}_ms']:.0f}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"
