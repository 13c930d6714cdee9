# SPDX-License-Identifier: Apache-2.0
"""The engine alone: packets in memory, nanoseconds of processor time for each."""

from __future__ import annotations

from dataclasses import dataclass

from finsy import P4Schema
from finsy.proto import p4r

from railweave.experiments import statistics
from railweave.experiments.switch_speed.scenario import SLOTS, Scenario
from railweave.switch.p4runtime.device import Device
from railweave.switch.pipeline import Pipeline


class WrongResult(Exception):
    """The switch did not compute what it had to: numbers or packets that are not right."""


@dataclass(frozen=True)
class EngineSpeed:
    """Nanoseconds of processor time per packet: the median over rounds, and the best round."""

    median_ns: float
    best_ns: float


def measure(scenario: Scenario, rounds: int) -> EngineSpeed:
    """Have every worker contribute to every slot `rounds` times over; WrongResult if a sum is not right.

    Of n contributions to a slot n - 1 are absorbed, and one becomes a result that leaves n times.
    """
    pipeline = loaded(scenario)
    everybody, slots = range(scenario.workers), range(2 * SLOTS)
    check_result(pipeline, scenario)
    taken = []
    for round_ in range(1, rounds + 1):
        packets = [
            (scenario.nics[worker].port, scenario.contribution(worker, slot, round_))
            for slot in slots
            for worker in everybody
        ]
        nanoseconds, emitted = pipeline.native.benchmark(packets, 1)
        if emitted != len(packets):
            raise WrongResult(f"{emitted} packets left the engine instead of {len(packets)}")
        taken.append(nanoseconds / len(packets))
    return EngineSpeed(statistics.median(taken), min(taken))


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
