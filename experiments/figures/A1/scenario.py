# SPDX-License-Identifier: Apache-2.0
"""Count the links that the shards of an allgather cross, in a ring and by multicast. Nothing is run."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from railweave.experiments import traffic
from railweave.experiments.figures import Experiment, OnPhase, key_of, run_by
from railweave.experiments.records import Record

NETWORKS: dict[str, tuple[int, ...]] = {"one switch": (), "fat tree of radix 36": (18, 36)}
HOSTS = (4, 8, 16, 32, 64, 128, 188, 256, 512, 1024)


def plan(quick: bool) -> list[Experiment]:
    """Return one experiment: the model."""
    options = {"hosts": HOSTS, "networks": NETWORKS}
    return [Experiment("traffic model", key_of("traffic model", options), 0, partial(_run, options))]


async def _run(options: dict[str, Any], out: Path, on_phase: OnPhase) -> list[Record]:
    counts = {
        name: {
            str(hosts): [traffic.ring(hosts, levels), traffic.multicast(hosts, levels)]
            for hosts in options["hosts"]
        }
        for name, levels in options["networks"].items()
    }
    ring, multicast = counts["fat tree of radix 36"]["188"]
    off = [
        abs(ring * hosts / multicast / (2 * hosts - 2) - 1)  # of one switch: from 2(P-1)/P
        for hosts, (ring, multicast) in ((int(p), pair) for p, pair in counts["one switch"].items())
    ]
    extra = {"counts": counts, "ring_188": ring, "multicast_188": multicast, "ratio_188": ring / multicast}
    return [run_by("traffic model", options, 0, contender="model", extra={**extra, "off": max(off)})]
