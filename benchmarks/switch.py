# SPDX-License-Identifier: Apache-2.0
"""`railweave bench switch`: the engine alone, switches under load, common programs, and pauses by clients."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from functools import partial
from pathlib import Path

from railweave.benchmarks import switch_load, switch_pauses, switch_programs
from railweave.benchmarks.aggregation import SLOTS, Scenario
from railweave.benchmarks.harness import REPORT, Benchmark, OnPhase, Part, Reading
from railweave.benchmarks.switch_links import loaded
from railweave.experiments import statistics
from railweave.experiments.errors import OptionError, ResultError
from railweave.switch import compiler
from railweave.switch.pipeline import Pipeline
from railweave.switch.targets import TARGETS

OTHERS = (switch_load.ECHO, *(name for name in TARGETS if name != "embedded"))
COLD_ROUNDS = 6  # of contributions to all slots, in a repetition
HOT_ROUNDS, HOT_SLOTS = 60, 16
ENGINE_NOTE = (
    "hot, cold: processor time per packet in memory. hot uses few slots, so that packets and registers are "
    "in the processor's caches."
)


def benchmark(lanes: int, hosts: int, seconds: float, compare: Sequence[str] = ()) -> Benchmark:
    """Return the benchmark: `seconds` of load on the embedded switch and on the targets to compare with.

    Raises OptionError for a number of lanes without a program, and for an unknown target.
    """
    for name in compare:
        if name not in OTHERS:
            raise OptionError(f"--compare {name}", f"one of {', '.join(OTHERS)}", "correct the name")
    scenario = Scenario(lanes, hosts)
    try:
        _ = scenario.program
    except ValueError as error:
        raise OptionError(f"--lanes {lanes}: {error}") from None
    logging.getLogger("finsy").setLevel(logging.CRITICAL)  # errors are raised
    why = {name: TARGETS[name].missing() for name in compare if name in TARGETS}
    targets = ["embedded", *(name for name in compare if not why.get(name))]
    return Benchmark(
        "switch",
        {
            "engine": Part(partial(engine, scenario), "one core", (ENGINE_NOTE,)),
            "load": Part(
                partial(switch_load.measure, scenario, targets, seconds), switch_load.LIMIT, switch_load.NOTES
            ),
            "programs": Part(
                partial(switch_programs.measure, [name for name in targets if name in TARGETS], seconds),
                switch_programs.LIMIT,
                switch_programs.NOTES,
            ),
            "pauses": Part(partial(switch_pauses.measure, seconds), switch_pauses.LIMIT, switch_pauses.NOTES),
        },
        tuple(f"{name}: {reason}" for name, reason in why.items() if reason),
    )


async def engine(scenario: Scenario, _: Path, on_phase: OnPhase) -> AsyncIterator[Reading]:
    """Measure the engine that interprets the program, and the compiled one if there is a compiler.

    All workers contribute to every slot. Of n contributions to a slot n - 1 are absorbed, and one becomes a
    result that leaves n times. ResultError if a sum is wrong.
    """
    for name in ("interpreted", "compiled"):
        on_phase(name)
        pipeline = loaded(scenario.files, scenario.updates())
        if name == "compiled":
            try:
                compiler.compiled(pipeline.native)
            except compiler.NotCompiled:
                return
        check_result(pipeline, scenario)
        cold = _median_ns(pipeline, scenario, range(1, COLD_ROUNDS + 1), 2 * SLOTS)
        after = range(COLD_ROUNDS + 1, COLD_ROUNDS + HOT_ROUNDS + 1)
        hot = _median_ns(pipeline, scenario, after, HOT_SLOTS)
        yield Reading("engine", {"engine": name, **scenario.size}, {"hot": (hot, "ns"), "cold": (cold, "ns")})


def _median_ns(pipeline: Pipeline, scenario: Scenario, rounds: range, slots: int) -> float:
    taken = []
    for round_ in rounds:
        packets = [
            (nic.port, scenario.contribution(worker, slot, round_))
            for worker, nic in enumerate(scenario.nics)
            for slot in range(slots)
        ]
        nanoseconds, emitted = pipeline.native.benchmark(packets, 1)
        if emitted != len(packets):
            raise ResultError(f"{emitted} packets left the engine", f"{len(packets)}", REPORT)
        taken.append(nanoseconds / len(packets))
    return statistics.median(taken)


def check_result(pipeline: Pipeline, scenario: Scenario) -> None:
    """Sum one chunk. ResultError unless each worker's port gets one correct copy of the result."""
    slot = 6
    copies: list[tuple[int, bytes]] = []
    for worker, nic in enumerate(scenario.nics):
        copies = pipeline.inject(nic.port, scenario.contribution(worker, slot, 0), 0)
    lanes = range(slot, slot + scenario.lanes)
    expected = b"".join((scenario.workers * lane).to_bytes(4, "big") for lane in lanes)
    if sorted(port for port, _ in copies) != sorted(nic.port for nic in scenario.nics):
        ports = [port for port, _ in copies]
        raise ResultError(f"results left by ports {ports}", "one result by each worker's port", REPORT)
    for port, packet in copies:
        if packet[-len(expected) :] != expected:
            raise ResultError(f"result at port {port} is wrong", "the sum of the contributions", REPORT)
