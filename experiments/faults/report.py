# SPDX-License-Identifier: Apache-2.0
"""The fault table, as text and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.table import Table

from railweave.experiments.faults.run import FaultsResult, Trial
from railweave.experiments.statistics import median


def table(result: FaultsResult) -> Table:
    """Return a row per fault: outcomes and times."""
    options = result.options
    hosts = len(options.topology.hosts)
    made = Table(
        title=f"{hosts} hosts, {options.topology.name}: sums of {options.bytes} bytes of int32, "
        f"{options.trials} trials each"
    )
    for name in ("fault", "outcome", "error after", "pause", "after repair", "formed again", "#wrong"):
        made.add_column(name, justify="left" if name in {"fault", "outcome"} else "right")
    for name, trials in _by_fault(result).items():
        outcomes = Counter(trial.outcome for trial in trials)
        made.add_row(
            name,
            ", ".join(f"{count} x {outcome}" for outcome, count in outcomes.items()),
            *(_span(trials, field) for field in ("error_s", "pause_s", "repaired_s", "formed_s")),
            str(sum(trial.wrong for trial in trials)),
        )
    return made


NOTE = (
    "Times: median … maximum, in s, of the slowest rank. Pause: the longest call after the fault; 0: "
    "none took more than 100 ms. After repair: from the repair to the end of that call, if there is no "
    "other path. Formed again: from the start of a new process for the dead rank."
)


def line(trial: Trial) -> str:
    """Return one line on a trial, shown while the experiment runs."""
    times = {
        "error after": trial.error_s,
        "pause": trial.pause_s,
        "after repair": trial.repaired_s,
        "formed again": trial.formed_s,
    }
    reported = ", ".join(f"{name} {seconds:.3f} s" for name, seconds in times.items() if seconds is not None)
    return f"{trial.fault} ({trial.where}): {trial.outcome}; {reported}; {trial.wrong} wrong"


def as_json(result: FaultsResult) -> dict[str, Any]:
    """Return the result as JSON values; times in s."""
    options = result.options
    return {
        "hosts": len(options.topology.hosts),
        "topology": options.topology.name,
        "rails": [plane.name for plane in options.topology.planes],
        "bytes": options.bytes,
        "seed": options.seed,
        "switch": options.switch_target,
        "rows": [
            {
                "fault": name,
                "trials": len(trials),
                "outcomes": Counter(trial.outcome for trial in trials),
                "expected": sum(trial.expected for trial in trials),
                "wrong": sum(trial.wrong for trial in trials),
                **{
                    field: _statistics(trials, field)
                    for field in ("error_s", "pause_s", "repaired_s", "formed_s")
                },
            }
            for name, trials in _by_fault(result).items()
        ],
        "trials": [asdict(trial) for trial in result.trials],
        "ok": result.ok,
    }


def _by_fault(result: FaultsResult) -> dict[str, list[Trial]]:
    return {
        name: [trial for trial in result.trials if trial.fault == name]
        for name in dict.fromkeys(trial.fault for trial in result.trials)
    }


def _values(trials: Sequence[Trial], field: str) -> list[float]:
    return [value for trial in trials if (value := getattr(trial, field)) is not None]


def _statistics(trials: Sequence[Trial], field: str) -> dict[str, float] | None:
    values = _values(trials, field)
    return {"median": median(values), "max": max(values)} if values else None


def _span(trials: Sequence[Trial], field: str) -> str:
    values = _values(trials, field)
    return f"{median(values):.2f} … {max(values):.2f}" if values else "-"
