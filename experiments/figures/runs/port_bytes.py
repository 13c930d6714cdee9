# SPDX-License-Identifier: Apache-2.0
"""Allgathers by multicast and in a ring; the kernel counts what every port has sent."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import railweave
from railweave.experiments.figures.modules import Numbers, OnPhase, Options
from railweave.experiments.figures.runs import traffic_model
from railweave.experiments.program.testbed import Testbed
from railweave.hosts.limits import payload_fraction
from railweave.topologies.lab.options import LabOptions
from railweave.topologies.planes import planes


def gather(comm: railweave.Communicator, calls: int, shard: int) -> tuple[int, int]:
    """Return the wrong bytes in the results of allgathers, and the bytes that this rank multicast."""
    wrong = 0
    for call in range(calls):
        every = [np.random.default_rng([call, rank]).bytes(shard) for rank in range(comm.world_size)]
        whole = np.frombuffer(b"".join(every), np.uint8)
        got = comm.all_gather(whole[comm.rank * shard :][:shard].copy())
        wrong += int(np.count_nonzero(got != whole))
    comm.barrier()  # others may still fetch from this rank
    return wrong, sum(rail.multicast_bytes for rail in comm.stats().rails)


def measure(options: Options, out: Path, on_phase: OnPhase) -> list[Numbers]:
    """Return the shards per allgather, from two jobs. Their difference is without a job's start and end."""
    hosts, shard = options["hosts"], options["shard"]
    extra: dict[str, float] = {"wrong": 0.0}
    with Testbed(planes(hosts, ("ina", "tcp"), options["rate_bps"]), LabOptions(out)) as bed:
        for rail, name in (("ina", "multicast"), ("tcp", "ring")):
            carried, sent = [], []
            for calls in options["calls"]:
                on_phase(f"{calls} allgathers, {name}")
                before = bed.counters().links[rail]
                values = bed.run(gather, calls, shard, rails=[rail]).wait().values
                carried.append(bed.counters().links[rail] - before)
                sent.append(sum(own for _, own in values))
                extra["wrong"] += sum(wrong for wrong, _ in values)
            shards = (options["calls"][1] - options["calls"][0]) * shard
            extra[name] = (carried[1] - carried[0]) * payload_fraction(rail, multicast=True) / shards
            extra[f"{name}_sent"] = (sent[1] - sent[0]) / shards
    return [
        {**extra, "model_ring": traffic_model.ring(hosts), "model_multicast": traffic_model.multicast(hosts)}
    ]
