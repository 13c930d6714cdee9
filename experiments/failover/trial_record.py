# SPDX-License-Identifier: Apache-2.0
"""The record of a trial: the calls around a fault."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from railweave.experiments.failover.figures import BASELINE_S, Window
from railweave.experiments.failover.trace import RankTrace
from railweave.experiments.failover.values import FailoverOptions, Trial
from railweave.experiments.figures import run_by
from railweave.experiments.records import Record, Sample


def record_of(options: FailoverOptions, trial: Trial, traces: Sequence[RankTrace], window: Window) -> Record:
    """Return the calls from shortly before the fault to the end of the trial.

    Times are relative to the fault. A call lasts from the start of the last rank to the end of the last rank.
    The bytes by rail are those of rank 0.
    """
    first = max(trace.forgotten for trace in traces)
    last = min(trace.forgotten + len(trace.calls) for trace in traces)
    by_rank = [trace.calls[first - trace.forgotten : last - trace.forgotten] for trace in traces]
    times_us, starts_s, carried = [], [], []
    for calls in zip(*by_rank, strict=True):
        begin, end = max(call.begin for call in calls), max(call.end for call in calls)
        if window.injected - BASELINE_S <= end and begin <= window.end:
            times_us.append(round((end - begin) * 1e6, 1))
            starts_s.append(round(begin - window.injected, 6))
            carried.append(Counter[str]())
            for piece in calls[0].slices:
                carried[-1][piece.rail] += piece.bytes
    rails = "+".join(plane.name for plane in options.topology.planes)
    sample = Sample(
        size_bytes=options.bytes,
        times_us=tuple(times_us),
        verified=len(times_us) * len(traces),
        wrong=trial.wrong,
        starts_s=tuple(starts_s),
        carried=tuple(carried),
    )
    configuration = {
        "hosts": len(options.topology.hosts),
        "topology": options.topology.name,
        "collective": options.collective,
        "dtype": options.dtype,
        "fault": trial.fault,
        "rail": trial.rail,
    }
    return run_by(
        f"failover: {trial.fault}, {trial.rail}",
        configuration,
        trial.number,
        contender=rails,
        samples=(sample,),
        seed=options.seed,
        extra={
            "fault": f"{trial.fault}, {trial.rail}",
            "repaired_s": round(window.repaired - window.injected, 6),
        },
    )
