# SPDX-License-Identifier: Apache-2.0
"""Allgathers by multicast and in a ring; the kernel counts what every port has sent."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import railweave
from railweave.experiments import traffic
from railweave.experiments.figures import Experiment, OnPhase, key_of, run_by
from railweave.experiments.program.testbed import Testbed
from railweave.experiments.records import Record
from railweave.hosts.limits import payload_fraction
from railweave.topologies.lab.options import LabOptions
from railweave.topologies.planes import planes

RATES_BPS = {4: 100_000_000, 8: 50_000_000, 16: 25_000_000}  # by hosts
SHARD = 1 << 18  # bytes
CALLS = (1, 5)  # of two jobs: the difference has nothing of a job's start and end


def plan(quick: bool) -> list[Experiment]:
    """Return an experiment per number of hosts."""
    return [
        Experiment(_name(hosts), key_of(_name(hosts), options), 20 + 2 * hosts, partial(_run, options))
        for hosts, rate in RATES_BPS.items()
        for options in [{"hosts": hosts, "rate_bps": rate, "shard": SHARD, "calls": CALLS}]
        if hosts < 16 or not quick
    ]


def _name(hosts: int) -> str:
    return f"port bytes, {hosts} hosts"


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


async def _run(options: dict[str, Any], out: Path, on_phase: OnPhase) -> list[Record]:
    return [await asyncio.to_thread(_measure, options, out, on_phase)]


def _measure(options: dict[str, Any], out: Path, on_phase: OnPhase) -> Record:
    hosts, shard = options["hosts"], options["shard"]
    extra: dict[str, float] = {"wrong": 0.0}
    with Testbed(planes(hosts, ("ina", "tcp"), options["rate_bps"]), LabOptions(out)) as bed:
        for rail, name in (("ina", "multicast"), ("tcp", "ring")):
            carried, sent = [], []
            for calls in options["calls"]:
                on_phase(f"{_name(hosts)}: {calls} allgathers, {name}")
                before = bed.counters().links[rail]
                values = bed.run(gather, calls, shard, rails=[rail]).wait().values
                carried.append(bed.counters().links[rail] - before)
                sent.append(sum(own for _, own in values))
                extra["wrong"] += sum(wrong for wrong, _ in values)
            shards = (options["calls"][1] - options["calls"][0]) * shard
            extra[name] = (carried[1] - carried[0]) * payload_fraction(rail, multicast=True) / shards
            extra[f"{name}_sent"] = (sent[1] - sent[0]) / shards
    extra |= {
        "ratio": extra["ring"] / extra["multicast"],
        "model_ring": traffic.ring(hosts),
        "model_multicast": traffic.multicast(hosts),
    }
    return run_by(_name(hosts), options, 0, contender="railweave", extra=extra)
