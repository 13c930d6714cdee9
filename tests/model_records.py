# SPDX-License-Identifier: Apache-2.0
"""Synthetic records from the cost model T = a + x/b, for tests of claims, figures and report."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from railweave.experiments.figures import Experiment, run_by
from railweave.experiments.measures import limits_bps
from railweave.experiments.records import Cpu, Record, Records, Sample
from railweave.experiments.reproduce import Options
from railweave.experiments.scenario import Scenario

CALLS = 20
LATENCY_S = {
    "railweave": 0.0004, "gloo": 0.004, "mptcp": 0.003, "openmpi": 0.002, "ring": 0.003,
    "hierarchical": 0.003, "ps": 0.003, "atp": 0.003, "switchml": 0.003, "omnireduce": 0.003,
    "thc": 0.003,
}  # fmt: skip
COUNTS = {"fetched_bytes": 3.0, "payload_bytes": 400.0, "ring_messages": 60.0, "rings": 2.0}


def of_scenario(
    scenario: Scenario, efficiency: Mapping[str, float] | None = None, **fields: Any
) -> list[Record]:
    """Return successful runs. `efficiency` is the reached share of the limit (default: 0.95)."""
    found = []
    for number in range(scenario.repetitions):
        for contender in scenario.contenders:
            rng = np.random.default_rng([number, len(contender.name)])
            reached = (efficiency or {}).get(contender.name, 0.95)
            limits = limits_bps(scenario, contender)
            hosts = len(scenario.network.hosts)
            latency_s = LATENCY_S[contender.kind] * (1 if "ina" in limits else hosts / 2)
            work = scenario.workload
            sizes = work.sizes or (sum(work.messages),)
            best = max(limits, key=lambda rail: limits[rail])
            samples, shares = [], {}
            for size in sizes:
                split = size > latency_s * max(limits.values()) / 8 and len(limits) > 1
                carried = limits if split else {best: limits[best]}
                seconds = work.compute_s + latency_s + 8 * size / (reached * sum(carried.values()))
                times = tuple(seconds * 1e6 * rng.uniform(0.98, 1.05, CALLS))
                samples.append(Sample(size, times, CALLS * hosts, 0))
                shares[str(size)] = {rail: limit / sum(carried.values()) for rail, limit in carried.items()}
            made = Record(
                scenario.key, scenario.name, contender.name, contender.kind, number, "ok",
                samples=tuple(samples), shares=shares if contender.kind == "railweave" else {},
                counters={rail: dict(COUNTS) for rail in limits},
                cpu=Cpu(9.0, 0.6, 0.01, 1.4, 2, {"hosts": 3.0, "switches": 2.0 if "ina" in limits else 0.2}),
                bottleneck="links", configuration=scenario.as_json(), commit="abcdef1", kernel="6.18",
                versions={"numpy": "2"}, at="2026-11-22T10:00:00",
            )  # fmt: skip
            found.append(Record(**{**vars(made), **fields}))
    return found


def of_experiment(step: Experiment) -> list[Record]:
    """Return runs with the fields that an experiment of the figures records."""
    if step.name == "traffic model":
        counts = {"one switch": {"4": [24, 16]}, "fat tree of radix 36": {"188": [76670, 38540]}}
        model = {"counts": counts, "off": 0.0}
        found = [run_by(step.name, {}, 0, contender="model", extra=model)]
    elif step.name == "cost model":
        kinds = ("flat ring", "hierarchical ring", "parallel NetReduce")
        model = {"times_s": {kind: {"32": 0.04} for kind in kinds}, "thresholds": {"32": 23.3e9}}
        numbers = {"threshold_32": 23.33, "threshold_1024": 21.92, "off": 0.0}
        extra = {**model, **numbers, "least_gain": 1.8, "over_hierarchical": 1.3}
        found = [run_by(step.name, {}, 0, contender="model", extra=extra)]
    elif step.name.startswith("port bytes"):
        hosts = int(step.name.split()[2])
        ring, multicast = 2 * hosts * (hosts - 1), hosts * hosts
        links = {"ring": ring, "multicast": multicast, "model_ring": ring, "model_multicast": multicast}
        extra = {**links, "multicast_sent": hosts, "wrong": 0.0}
        found = [run_by(step.name, {}, 0, contender="railweave", extra=extra)]
    elif "jobs: " in step.name:
        kind, _, jobs = step.name.partition(", jobs: ")
        each = {"mean_mbps": 4.0, "least_mbps": 3.0, "greatest_mbps": 5.0, "evenness": 0.6}
        extra = {"total_mbps": 4.0 * int(jobs), **each, "wrong": 0.0}
        configuration = {"jobs": int(jobs)}
        found = [run_by(step.name, configuration, 0, contender=kind, extra=extra)]
    elif step.name.startswith("training"):
        rails = step.name.partition(", ")[2]
        speed = {"samples_per_s": 1000.0 * len(rails), "off_bound": 0.2, "accuracy": 0.96}
        found = [run_by(step.name, {}, 0, contender=rails, extra=speed)]
    elif step.name.startswith("racks of"):
        gains = {f"{name}_gain": {"leaf1": 1.1, "leaf2": 1.05} for name in ("predicted", "measured")}
        extra = {**gains, "misplaced": 0.0, "first": 1.0, "slowest": 1.1, "wrong": 0.0}
        found = [run_by(step.name, {"jobs": "4x2M"}, 0, contender="railweave", extra=extra)]
    elif step.name.startswith("two rails"):
        times = {"gloo": 2.0, "tcp+tcp": 1.0, "ina+tcp": 1.0}
        extra = {"nodes": int(step.name.split()[2]), "call_s": times, "step_s": times}
        found = [run_by(step.name, {}, 0, contender="simulated", extra=extra)]
    elif step.name.startswith("lab and simulation"):
        times = {f"{what}_s": {"0": 7.0, "4": 5.9} for what in ("measured", "simulated")}
        extra = {**times, "least": 0.95, "greatest": 1.0, "wrong": 0.0}
        found = [run_by(step.name, {}, 0, contender="railweave", extra=extra)]
    elif step.name.endswith(" hosts"):
        ratios = {"gain": 2.0, "gain_hierarchical": 1.3, "ring_model": 1.1, "racks_model": 1.2, "rises": 0.0}
        times = {"0": 0.02, "4": 0.01}
        extra = {**ratios, "model_s": times, "seconds": times | {"hierarchical": 0.013, "tree": 0.005}}
        found = [run_by(step.name, {}, 0, contender="simulated", extra=extra)]
    else:
        trial = {"reroute_s": 0.08, "readmit_s": 0.4, "wrong": 0.0, "unexpected": 0.0}
        found = [
            run_by(step.name, {}, n, contender="ina+tcp", extra={**trial, "curve": _curve()}) for n in (0, 1)
        ]
    return [Record(**{**vars(record), "scenario": step.key}) for record in found]


def _curve() -> dict[str, Any]:
    rates = {"ina": [60e6] * 15 + [0.0] * 20 + [60e6] * 15, "tcp": [40e6] * 15 + [45e6] * 20 + [40e6] * 15}
    return {"begin_s": -0.6, "bin_s": 0.04, "repaired_s": 0.8, "bps": rates}


def of(
    step: Scenario | Experiment, change: Callable[[Record], Record] = lambda record: record
) -> list[Record]:
    """Return successful runs of a step of a figure's plan."""
    made = of_scenario(step) if isinstance(step, Scenario) else of_experiment(step)
    return [change(record) for record in made]


def slower(record: Record, times: float) -> Record:
    """Return the record of a run whose calls took longer by this factor."""
    samples = (
        replace(sample, times_us=tuple(times * each for each in sample.times_us)) for sample in record.samples
    )
    return replace(record, samples=tuple(samples))


def of_plan(options: Options, change: Callable[[Record], Record] = lambda record: record) -> list[Record]:
    """Return successful runs of the plan of figures."""
    steps = {step.key: step for figure in options.figures for step in options.plan(figure)}
    return [record for step in steps.values() for record in of(step, change)]


def record(options: Options, change: Callable[[Record], Record] = lambda record: record) -> Records:
    """Record all runs of the plan of figures."""
    records = Records(options.out / "records")
    for made in of_plan(options, change):
        records.append(made)
    return records
