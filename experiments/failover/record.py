# SPDX-License-Identifier: Apache-2.0
"""The record of a trial: the calls around a fault."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from railweave.experiments.failover.figures import BASELINE_S, Window
from railweave.experiments.failover.values import FailoverOptions, Trial
from railweave.experiments.figures import run_by
from railweave.experiments.records import Record, Sample
from railweave.experiments.trace import RankTrace, joined


def record_of(options: FailoverOptions, trial: Trial, traces: Sequence[RankTrace], window: Window) -> Record:
    """Return the calls from shortly before the fault to the end of the trial.

    Times are relative to the fault. A call lasts from the start of the last rank to the end of the last rank.
    The bytes by rail are those of rank 0.
    """
    shown, carried = [], []
    for by_rank in joined(traces):
        begin, end = max(call.begin for call in by_rank), max(call.end for call in by_rank)
        if window.injected - BASELINE_S <= end and begin <= window.end:
            shown.append((begin, end))
            carried.append(Counter[str]())
            for piece in by_rank[0].slices:
                carried[-1][piece.rail] += piece.bytes
    sample = Sample(
        size_bytes=options.bytes,
        times_us=tuple(round((end - begin) * 1e6, 1) for begin, end in shown),
        verified=len(shown) * len(traces),
        wrong=trial.wrong,
        starts_s=tuple(round(begin - window.injected, 6) for begin, _ in shown),
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
        contender="+".join(plane.name for plane in options.topology.planes),
        samples=(sample,),
        seed=options.seed,
        extra={
            "fault": f"{trial.fault}, {trial.rail}",
            "repaired_s": round(window.repaired - window.injected, 6),
        },
    )
