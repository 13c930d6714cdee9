# SPDX-License-Identifier: Apache-2.0
"""The demo from start to end: a lab, a training in it, and the check against one process."""

from __future__ import annotations

import asyncio
import math
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from railweave.experiments.accounting import RailAccount, chunks_of, maxima_of, sums_of
from railweave.experiments.errors import OptionError
from railweave.experiments.hosts import require_peers
from railweave.experiments.program import run as program
from railweave.experiments.program.worker import command_of
from railweave.experiments.statistics import mean
from railweave.experiments.supervisor import messages
from railweave.experiments.timeline import Span
from railweave.experiments.training.model import TrainingOptions
from railweave.experiments.training.reference import Reference, reference
from railweave.experiments.training.worker import train
from railweave.p4src.artifacts import ROCE_LANES, lanes_for
from railweave.switch.targets import TARGETS
from railweave.topologies.lab.options import LabOptions
from railweave.topologies.model import Plane, Topology

RESULT_DECISION = "result"
Message: TypeAlias = dict[str, Any]  # of a rank


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

    @classmethod
    def of(cls, messages: Sequence[Message]) -> Step:
        """Return the step from the messages of all ranks."""
        payload: Counter[str] = Counter()
        rates: dict[str, list[float]] = defaultdict(list)
        for piece in (piece for message in messages for piece in _gradients(message)):
            payload[piece["rail"]] += piece["bytes"]
            rates[piece["rail"]].append(piece["bytes"] * 8 / max(piece["end_s"] - piece["start_s"], 1e-9))
        return cls(
            messages[0]["step"],
            mean([message["loss"] for message in messages]),
            mean([message["computed"] - message["began"] for message in messages]),
            mean([message["reduced"] - message["computed"] for message in messages]),
            {rail: mean(values) for rail, values in rates.items()},
            {rail: count / payload.total() for rail, count in payload.items()},
        )


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

    def __init__(self, ranks: int, on_step: Callable[[Step], None]) -> None:
        """Call `on_step` whenever all ranks have taken a step."""
        self._ranks = ranks
        self._on_step = on_step
        self._messages: dict[str, list[Message]] = defaultdict(list)  # by event
        self.steps: list[Step] = []

    def take(self, message: Message) -> None:
        """Take one message of one rank."""
        self._messages[message["event"]].append(message)
        if message["event"] == "step":
            arrived = [each for each in self._messages["step"] if each["step"] == message["step"]]
            if len(arrived) == self._ranks:
                self.steps.append(Step.of(arrived))
                self._on_step(self.steps[-1])

    @property
    def start(self) -> float:
        """The start of the first rank, CLOCK_MONOTONIC."""
        return float(min(message["time"] for message in self._messages["start"]))

    def done(self) -> dict[int, Message]:
        """Return the last message of each rank."""
        return {message["rank"]: message for message in self._messages["done"]}

    def spans(self) -> list[Span]:
        """Return the computation and the slices of all steps, in seconds since the start."""
        start, found = self.start, []
        for message in self._messages["step"]:
            rank, number = message["rank"], message["step"]
            found.append(Span(rank, "compute", number, message["began"] - start, message["computed"] - start))
            found += [
                Span(rank, s["rail"], number, s["start_s"] - start, s["end_s"] - start, s["bytes"])
                for s in _gradients(message)
            ]
        return found

    def chunks(self, lanes: Mapping[str, int], netreduce: Collection[str] = ()) -> Counter[str]:
        """Return the chunks that a switch should have summed for rank 0, by rail.

        `lanes` is the number of lanes of a packet, by rail. `netreduce` has the names of netreduce rails.
        """
        found: Counter[str] = Counter()
        every = (message for event in ("start", "step", "done") for message in self._messages[event])
        for piece in (piece for message in every if not message["rank"] for piece in message["slices"]):
            rail, survey, elements = piece["rail"], piece["survey"], piece["bytes"] // 4
            if piece["repair"]:
                continue
            # A survey is a maximum of integers: it has no exponents, and netreduce does not support it.
            if rail not in netreduce:
                found[rail] += (maxima_of if survey else chunks_of)(elements, lanes[rail], self._ranks)
            elif not survey:
                found[rail] += sums_of(elements, lanes[rail])
        return found


def _gradients(message: Message) -> list[dict[str, Any]]:
    return [piece for piece in message["slices"] if not piece["survey"]]


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
    recorder = Recorder(len(options.topology.hosts), on_step)
    training = options.training
    command = command_of(train, training.steps, training.seed, str(options.lab.out))
    demo = program.ProgramOptions(
        options.topology,
        command,
        options.lab,
        options.shares,
        join_s=0,
        live=options.live,
        title="railweave demo",
    )
    ran = await program.run(demo, on_phase, messages(lambda _, message: recorder.take(message)), on_news)
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


def _result(
    options: DemoOptions, recorder: Recorder, ran: program.ProgramResult, alone: Reference
) -> DemoResult:
    parameters = np.load(options.lab.out / "parameters.npy")
    kinds = {plane.name: plane.kind for plane in options.topology.planes}
    netreduce = [plane for plane, kind in kinds.items() if kind == "netreduce"]
    chunks, done, spans = recorder.chunks(_lanes(options), netreduce), recorder.done(), recorder.spans()
    # Algorithms count other things. If a switch of a netreduce plane has counted nothing, the hosts add.
    results = {
        plane: packets.get(RESULT_DECISION, 0)
        for plane, packets in ran.switch_counters.items()
        if kinds[plane] == "ina" or (plane in netreduce and any(packets.values()))
    }
    rails = [
        replace(rail, switch_results=results[rail.name], expected_results=chunks[rail.name])
        if rail.name in results
        else rail
        for rail in ran.collected.rails
    ]
    return DemoResult(
        options=options,
        steps=recorder.steps,
        spans=spans,
        rails=rails,
        switch_counters=ran.switch_counters,
        accuracy=done[0]["accuracy"],
        ranks_identical=len({message["digest"] for message in done.values()}) == 1,
        max_abs_diff=float(np.abs(parameters - alone.parameters).max()),
        reference=alone,
        seconds=max((span.end_s for span in spans), default=0.0),
        events=[(at - recorder.start, text) for at, text in ran.events],
    )
