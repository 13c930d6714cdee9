# SPDX-License-Identifier: Apache-2.0
"""The engine alone: packets in memory, nanoseconds of processor time for each."""

from __future__ import annotations

from dataclasses import dataclass

from finsy import P4Schema
from finsy.proto import p4r

from railweave.experiments import statistics
from railweave.experiments.switch_speed.scenario import SLOTS, Scenario
from railweave.switch import compiler
from railweave.switch.p4runtime.device import Device
from railweave.switch.pipeline import Pipeline

HOT_SLOTS = 16


class WrongResult(Exception):
    """The switch did not compute what it had to: numbers or packets that are not right."""


@dataclass(frozen=True)
class EngineSpeed:
    """Medians of the processor time per packet in nanoseconds, by how the engine runs the program."""

    way: str  # interpreted or compiled
    hot_ns: float  # few slots: packets and registers are in the processor's caches
    cold_ns: float  # all slots


def measure(scenario: Scenario, rounds: int) -> tuple[EngineSpeed, ...]:
    """The engine interpreting the program and, where there is a compiler, running it compiled.

    One worker after the other contributes to every slot, `rounds` times over; WrongResult if a sum is not
    right. Of n contributions to a slot n - 1 are absorbed, and one becomes a result that leaves n times.
    """
    speeds = []
    for way in ("interpreted", "compiled"):
        pipeline = loaded(scenario)
        if way == "compiled":
            try:
                compiler.compiled(pipeline.native)
            except compiler.NotCompiled:
                break
        check_result(pipeline, scenario)
        cold = _median_ns(pipeline, scenario, range(1, rounds + 1), 2 * SLOTS)
        hot = _median_ns(pipeline, scenario, range(rounds + 1, 11 * rounds + 1), HOT_SLOTS)
        speeds.append(EngineSpeed(way, hot, cold))
    return tuple(speeds)


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
            raise WrongResult(f"{emitted} packets left the engine instead of {len(packets)}")
        taken.append(nanoseconds / len(packets))
    return statistics.median(taken)


def loaded(scenario: Scenario) -> Pipeline:
    """An engine with the program and the group, as a controller leaves a switch."""
    schema = P4Schema(scenario.program.p4info_path, scenario.program.json_path)
    config = schema.get_pipeline_config()
    pipeline = Pipeline.load(config.p4_device_config)
    device = Device.of(config, pipeline)
    for entity in scenario.updates():
        update = p4r.Update()
        update.CopyFrom(entity.encode_update(schema))
        device.write(update)
    return pipeline


def check_result(pipeline: Pipeline, scenario: Scenario) -> None:
    """Sum one chunk and look at the lanes of every copy of the result."""
    slot = 6
    copies: list[tuple[int, bytes]] = []
    for worker, nic in enumerate(scenario.nics):
        copies = pipeline.inject(nic.port, scenario.contribution(worker, slot, 0), 0)
    expected = b"".join(
        (scenario.workers * lane).to_bytes(4, "big") for lane in range(slot, slot + scenario.lanes)
    )
    if sorted(port for port, _ in copies) != sorted(nic.port for nic in scenario.nics):
        raise WrongResult(f"results left by ports {[port for port, _ in copies]}, not once by each worker's")
    for port, packet in copies:
        if packet[-len(expected) :] != expected:
            raise WrongResult(f"the result that left by port {port} is not the sum of the contributions")
