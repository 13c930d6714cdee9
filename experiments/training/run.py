# SPDX-License-Identifier: Apache-2.0
"""The demo from start to end: a lab, a training in it, and the check against one process."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from railweave.experiments.accounting import RailAccount, chunks_of, maxima_of, sums_of
from railweave.experiments.errors import OptionError
from railweave.experiments.hosts import require_peers
from railweave.experiments.messages import read
from railweave.experiments.program.run import ProgramOptions, ProgramResult
from railweave.experiments.program.run import run as run_program
from railweave.experiments.program.worker import command_of
from railweave.experiments.timeline import Span
from railweave.experiments.training.model import TrainingOptions
from railweave.experiments.training.reference import Reference, reference
from railweave.experiments.training.worker import train
from railweave.p4src.artifacts import ROCE_LANES, lanes_for
from railweave.switch.targets import TARGETS
from railweave.topologies.lab.options import LabOptions
from railweave.topologies.model import Plane, Topology

RESULT_DECISION = "result"


@dataclass(frozen=True)
class DemoOptions:
    """One run of the demo."""

    topology: Topology
    training: TrainingOptions
    lab: LabOptions
    shares: Mapping[str, float] | None = None
    live: int | None = None  # port of the live page, 0 for a free one; None: no page


@dataclass(frozen=True)
class Step:
    """One step of training that every rank has taken."""

    number: int
    loss: float  # mean over the ranks
    compute_s: float
    communicate_s: float  # both mean over the ranks
    goodput_bps: Mapping[str, float]  # by rail, mean over the ranks
    shares: Mapping[str, float]


@dataclass(frozen=True)
class DemoResult:
    """The result of a run."""

    options: DemoOptions
    steps: Sequence[Step]
    spans: Sequence[Span]
    rails: Sequence[RailAccount]
    switch_counters: Mapping[str, Mapping[str, int]]
    accuracy: float
    ranks_identical: bool  # all ranks end with the same parameters, bit for bit
    max_abs_diff: float
    reference: Reference
    seconds: float  # from the begin of the first step to the end of the last
    events: Sequence[tuple[float, str]] = ()  # cuts and repairs by the live page, on the spans' clock

    @property
    def switch_results(self) -> int:
        """Packets that the switches turned into results, by their P4 counters."""
        return sum(rail.switch_results or 0 for rail in self.rails)

    @property
    def within_bound(self) -> bool:
        """Whether the difference to training in one process is within the bound for rounding."""
        return self.max_abs_diff <= self.reference.bound

    @property
    def counts_agree(self) -> bool:
        """Whether the counts of agents, interfaces and switches agree."""
        return all(rail.bytes_agree and rail.results_agree for rail in self.rails)

    @property
    def ok(self) -> bool:
        """Whether all checks have passed."""
        return (
            self.ranks_identical and self.within_bound and self.counts_agree and math.isfinite(self.accuracy)
        )


class Recorder:
    """Collects the ranks' messages."""

    def __init__(
        self,
        ranks: int,
        on_step: Callable[[Step], None],
        lanes: Mapping[str, int],
        netreduce: Collection[str] = (),
    ) -> None:
        """Call `on_step` whenever all ranks have taken a step.

        `lanes` is the number of lanes of a packet, by rail. `netreduce` has the names of netreduce rails.
        """
        self._ranks = ranks
        self._lanes = lanes
        self._netreduce = netreduce
        self._on_step = on_step
        self._waiting: dict[int, list[dict[str, Any]]] = {}
        self.start = math.inf  # of CLOCK_MONOTONIC
        self.steps: list[Step] = []
        self.spans: list[Span] = []
        self.done: dict[int, dict[str, Any]] = {}
        self.chunks: dict[str, int] = {}  # chunks that a switch should have summed for rank 0, by rail

    def take(self, message: dict[str, Any]) -> None:
        """Take one message of one rank."""
        match message["event"]:
            case "start":
                self.start = min(self.start, message["time"])
                self._count_chunks(message)
            case "step":
                self._take_step(message)
            case "done":
                self._count_chunks(message)
                self.done[message["rank"]] = message

    def seconds(self) -> float:
        """Return the time from the first step to the end of the last."""
        return max((span.end_s for span in self.spans), default=0.0)

    def _count_chunks(self, message: dict[str, Any]) -> None:
        if message["rank"] == 0:
            for piece in message["slices"]:
                rail = piece["rail"]
                if not piece["repair"]:
                    self.chunks[rail] = self.chunks.get(rail, 0) + self._chunks_of(piece)

    def _chunks_of(self, piece: dict[str, Any]) -> int:
        elements, lanes = piece["bytes"] // 4, self._lanes[piece["rail"]]
        survey = piece["survey"]  # a maximum of integers: no exponents, and not supported by netreduce
        if piece["rail"] in self._netreduce:
            return 0 if survey else sums_of(elements, lanes)
        return (maxima_of if survey else chunks_of)(elements, lanes, self._ranks)

    def _take_step(self, message: dict[str, Any]) -> None:
        rank, number = message["rank"], message["step"]
        self.spans.append(
            Span(rank, "compute", number, message["began"] - self.start, message["computed"] - self.start)
        )
        for piece in _gradients(message):
            self.spans.append(
                Span(
                    rank,
                    piece["rail"],
                    number,
                    piece["start"] - self.start,
                    piece["end"] - self.start,
                    piece["bytes"],
                )
            )
        self._count_chunks(message)
        arrived = self._waiting.setdefault(number, [])
        arrived.append(message)
        if len(arrived) == self._ranks:
            self.steps.append(_step(self._waiting.pop(number)))
            self._on_step(self.steps[-1])


def _gradients(message: dict[str, Any]) -> list[dict[str, Any]]:
    return [piece for piece in message["slices"] if not piece["survey"]]


def _step(messages: list[dict[str, Any]]) -> Step:
    payload: dict[str, int] = {}
    rates: dict[str, list[float]] = {}
    for message in messages:
        for piece in _gradients(message):
            payload[piece["rail"]] = payload.get(piece["rail"], 0) + piece["bytes"]
            rates.setdefault(piece["rail"], []).append(
                piece["bytes"] * 8 / max(piece["end"] - piece["start"], 1e-9)
            )
    total = sum(payload.values()) or 1
    return Step(
        number=messages[0]["step"],
        loss=sum(message["loss"] for message in messages) / len(messages),
        compute_s=sum(message["computed"] - message["began"] for message in messages) / len(messages),
        communicate_s=sum(message["reduced"] - message["computed"] for message in messages) / len(messages),
        goodput_bps={rail: sum(values) / len(values) for rail, values in rates.items()},
        shares={rail: count / total for rail, count in payload.items()},
    )


def check(options: DemoOptions) -> None:
    """Raise OptionError if options do not fit together."""
    if options.training.steps < 1:
        raise OptionError(f"--steps {options.training.steps}", "at least 1", "correct --steps")
    require_peers(options.topology)
    if options.training.batch < len(options.topology.hosts):
        raise OptionError(
            f"batches of {options.training.batch} images for {len(options.topology.hosts)} hosts",
            "at least one image per host",
            "take fewer hosts",
        )


async def run(
    options: DemoOptions,
    on_phase: Callable[[str], None] = lambda _: None,
    on_step: Callable[[Step], None] = lambda _: None,
    on_news: Callable[[str], None] = lambda _: None,
) -> DemoResult:
    """Run the demo. `on_news` gets the address of its live page, and the effects of the page's buttons.

    Raises LabError and OptionError.
    """
    check(options)
    netreduce = [plane.name for plane in options.topology.planes if plane.kind == "netreduce"]
    recorder = Recorder(len(options.topology.hosts), on_step, _lanes(options), netreduce)
    training = options.training
    command = command_of(train, training.steps, training.seed, str(options.lab.out))
    program = ProgramOptions(
        options.topology,
        command,
        options.lab,
        options.shares,
        join_s=0,
        live=options.live,
        title="railweave demo",
    )

    def on_line(_: int, text: str) -> None:
        if (message := read(text)) is not None:
            recorder.take(message)

    ran = await run_program(program, on_phase, on_line, on_news)
    on_phase("checking against the same training in one process")
    return _result(options, recorder, ran, await _train_alone(options))


def _lanes(options: DemoOptions) -> dict[str, int]:
    """Return the lanes of a packet by rail, as if all rails were in-network rails."""
    of_target = TARGETS[options.lab.switch_target].lanes

    def lanes(plane: Plane) -> int:
        return ROCE_LANES if plane.kind == "netreduce" else of_target or lanes_for(plane.least_mtu)

    return {plane.name: lanes(plane) for plane in options.topology.planes}


async def _train_alone(options: DemoOptions) -> Reference:
    stop, most = threading.Event(), max(_lanes(options).values())
    try:
        return await asyncio.to_thread(reference, options.training, len(options.topology.hosts), most, stop)
    finally:
        stop.set()  # after a cancellation, the thread must not keep the program alive


def _result(options: DemoOptions, recorder: Recorder, ran: ProgramResult, alone: Reference) -> DemoResult:
    parameters = np.load(options.lab.out / "parameters.npy")
    # If a switch of a netreduce plane has counted nothing, it only forwards packets, and the hosts add.
    results = {
        plane: packets.get(RESULT_DECISION, 0)
        for plane, packets in ran.switch_counters.items()
        if options.topology.plane(plane).kind != "netreduce" or any(packets.values())
    }
    return DemoResult(
        options=options,
        steps=recorder.steps,
        spans=recorder.spans,
        rails=[
            replace(
                rail, switch_results=results[rail.name], expected_results=recorder.chunks.get(rail.name, 0)
            )
            if rail.name in results
            else rail
            for rail in ran.collected.rails
        ],
        switch_counters=ran.switch_counters,
        accuracy=recorder.done[0]["accuracy"],
        ranks_identical=len({message["digest"] for message in recorder.done.values()}) == 1,
        max_abs_diff=float(np.abs(parameters - alone.parameters).max()),
        reference=alone,
        seconds=recorder.seconds(),
        events=[(at - recorder.start, text) for at, text in ran.events],
    )
