# SPDX-License-Identifier: Apache-2.0
"""Cost models of a flat ring, a hierarchical ring and parallel NetReduce. Nothing is run."""

from __future__ import annotations

from pathlib import Path

from scipy.optimize import bisect

from railweave.experiments.figures.modules import Numbers, OnPhase, Options
from railweave.experiments.statistics import ratios


def flat_ring(p: int, o: Options, intra: float) -> float:
    """Return the time of a ring of all accelerators. Each step waits for the slowest link."""
    slowest = min(intra, o["inter_bytes_per_s"])
    return 2 * (p - 1) * float(o["alpha_s"] + o["message_bytes"] / p / slowest)


def hierarchical_ring(p: int, o: Options, intra: float) -> float:
    """Return the time of Tencent's: reduce to one accelerator per machine, ring, and broadcast."""
    machines, size = p // o["per_machine"], o["message_bytes"]
    ring = 2 * (machines - 1) * (o["alpha_s"] + size / machines / o["inter_bytes_per_s"])
    return float(ring + 2 * size / intra)


def parallel_netreduce(p: int, o: Options, intra: float) -> float:
    """Return the time of reduce-scatter in machines, NetReduce of an n-th each, and allgather in machines."""
    n, size = o["per_machine"], o["message_bytes"]
    within = 2 * (n - 1) * (o["alpha_s"] + size / n / intra)
    return float(within + o["alpha_s"] + size / o["inter_bytes_per_s"])


MODELS = {
    "flat ring": flat_ring,
    "hierarchical ring": hierarchical_ring,
    "parallel NetReduce": parallel_netreduce,
}


def threshold(p: int, o: Options) -> float:
    """Return the bandwidth within machines from which NetReduce beats a flat ring, without latencies."""
    free = {**o, "alpha_s": 0.0}

    def lead_s(intra: float) -> float:
        return flat_ring(p, free, intra) - parallel_netreduce(p, free, intra)

    return float(bisect(lead_s, o["inter_bytes_per_s"], 1e12))


def closed_threshold(p: int, o: Options) -> float:
    """Return the threshold by the formula B_intra / B_inter > 2(n - 1)P / (n(P - 2))."""
    n = o["per_machine"]
    return float(o["inter_bytes_per_s"] * 2 * (n - 1) * p / (n * (p - 2)))


def measure(options: Options, out: Path, on_phase: OnPhase) -> list[Numbers]:
    """Return the times of all models, and the bandwidths from which NetReduce is faster."""
    machines, intra = options["accelerators"], options["intra_bytes_per_s"]
    times = {name: {str(p): model(p, options, intra) for p in machines} for name, model in MODELS.items()}
    thresholds = {str(p): threshold(p, options) for p in machines}
    ring, hierarchical, ours = (list(by_size.values()) for by_size in times.values())
    return [
        {
            "times_s": times,
            "thresholds": thresholds,
            "threshold_32": thresholds["32"] / 1e9,
            "threshold_1024": thresholds["1024"] / 1e9,
            "off": max(abs(thresholds[str(p)] / closed_threshold(p, options) - 1) for p in machines),
            "least_gain": min(ratios(ring, ours)),
            "over_hierarchical": min(ratios(hierarchical, ours)),
        }
    ]
