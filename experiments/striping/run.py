# SPDX-License-Identifier: Apache-2.0
"""The striping experiments: one lab per case, in which all contenders take turns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from railweave.experiments.errors import OptionError
from railweave.experiments.hosts import JobOptions, module_command, start_job
from railweave.experiments.messages import read
from railweave.experiments.striping.values import Call, Case, Found, Row, StripingOptions
from railweave.experiments.striping.worker import Plan
from railweave.topologies.lab.lab import Lab
from railweave.topologies.lab.options import LabOptions

WORKER = "railweave.experiments.striping.worker"
PARTS = ("sizes", "thresholds", "convergence", "overhead")
PAIRS = (("tcp", "tcp"), ("ina", "tcp"), ("ina", "rdma"), ("tcp", "rdma"))
WARMUP = 30  # calls of each size in which a split is learnt
PHASE = 40  # calls from one change of a rate to the next
OVERHEAD_BYTES, OVERHEAD_CALLS = 1024, 128  # per block: a survey or more in each


def cases(options: StripingOptions) -> list[Case]:
    """Return what the chosen parts consist of; OptionError for options that make no sense."""
    parts, hosts, rate_bps = options.parts, options.hosts, options.rate_bps
    sizes, iters = options.sizes, options.iters
    for part in parts:
        if part not in PARTS:
            raise OptionError(f"unknown part {part!r}; parts are {', '.join(PARTS)}")
    if hosts < 2 or any(count < 2 for count in options.threshold_hosts):
        raise OptionError("a collective needs at least 2 hosts")
    if iters < 1:
        raise OptionError(f"--iters {iters}: expected at least 1")
    if rate_bps < 1_000_000:
        raise OptionError(f"--rate {rate_bps}: expected at least 1M: splits are of shaped links")
    made: list[Case] = []
    if "sizes" in parts:
        slow = rate_bps * 3 // 10
        for kinds, rates in (
            (("tcp", "tcp"), (rate_bps, rate_bps)),
            (("tcp", "tcp"), (rate_bps, slow)),
            (("tcp", "tcp", "tcp"), (rate_bps,) * 3),
        ):
            made.append(_sweep("sizes", kinds, rates, hosts, sizes, iters))
    if "thresholds" in parts:
        made += [
            _sweep("thresholds", pair, (rate_bps, rate_bps), count, sizes, iters)
            for pair in PAIRS
            for count in options.threshold_hosts
        ]
    if "convergence" in parts:
        made += [_trace(pair, rate_bps, hosts, max(sizes)) for pair in (PAIRS[0], PAIRS[1])]
    if "overhead" in parts:
        made += [_overhead(pair, rate_bps, hosts, iters) for pair in (PAIRS[0], PAIRS[1])]
    return made


def _contenders(kinds: Sequence[str], rates: Sequence[int], hosts: int) -> tuple[tuple[str, ...], ...]:
    """Return all rails together, and each alone."""
    names = Case("", tuple(kinds), tuple(rates), hosts, Plan((), (), 0, 0)).rails
    return (names, *((name,) for name in names))


def _sweep(
    part: str, kinds: Sequence[str], rates: Sequence[int], hosts: int, sizes: Sequence[int], iters: int
) -> Case:
    plan = Plan(_contenders(kinds, rates, hosts), tuple(sizes), WARMUP, iters)
    return Case(part, tuple(kinds), tuple(rates), hosts, plan)


def _trace(kinds: Sequence[str], rate_bps: int, hosts: int, size: int) -> Case:
    """Cold; then the last rail at half its rate; then as before."""
    rates = (rate_bps,) * len(kinds)
    together = _contenders(kinds, rates, hosts)[0]
    plan = Plan((together,), (size,), 0, 3 * PHASE, trace=True)
    changes = ((PHASE, together[-1], rate_bps // 2), (2 * PHASE, together[-1], rate_bps))
    return Case("convergence", tuple(kinds), rates, hosts, plan, changes)


def _overhead(kinds: Sequence[str], rate_bps: int, hosts: int, iters: int) -> Case:
    rates = (rate_bps,) * len(kinds)
    plan = Plan(_contenders(kinds, rates, hosts), (OVERHEAD_BYTES,), 300, iters, OVERHEAD_CALLS)
    return Case("overhead", tuple(kinds), rates, hosts, plan)


async def run(
    options: StripingOptions,
    on_phase: Callable[[str], None] = lambda _: None,
    on_found: Callable[[Found], None] = lambda _: None,
) -> list[Found]:
    """Run one case after the other; raises LabError and OptionError."""
    found = []
    chosen = cases(options)
    for place, case in enumerate(chosen):
        on_phase(f"{case.part}: {case.name} ({place + 1} of {len(chosen)})")
        async with Lab(case.topology, LabOptions(options.out / f"{place}-{case.part}")) as lab:
            gathered = _Gathered(case, lab)
            await start_job(lab, JobOptions("striping", module_command(WORKER, *case.plan.arguments())))
            async for line in lab.events():
                if (message := read(line.text)) is not None:
                    gathered.take(message)
        found.append(gathered.found())
        on_found(found[-1])
    return found


class _Gathered:
    """Collects the ranks' messages, and changes rates when due."""

    def __init__(self, case: Case, lab: Lab) -> None:
        self._case = case
        self._lab = lab
        self._waiting: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        self._rows: list[Row] = []
        self._calls: list[Call] = []
        self._changes = list(case.changes)
        self._changed_after: list[int] = []

    def take(self, message: dict[str, Any]) -> None:
        """Take one message of one rank."""
        if message["event"] not in ("row", "call"):
            return
        key = (message["bytes"], message.get("contender"), message.get("place"))
        arrived = self._waiting.setdefault(key, [])
        arrived.append(message)
        if len(arrived) < self._case.hosts:
            return
        messages = self._waiting.pop(key)
        seconds = np.mean([each["seconds"] for each in messages], axis=0)
        wrong = sum(each["wrong"] for each in messages)
        shares = next(each["shares"] for each in messages if each["rank"] == 0)
        if message["event"] == "row":
            times = [float(value) for value in seconds]
            self._rows.append(Row(message["bytes"], message["contender"], times, shares, wrong))
        else:
            self._calls.append(Call(message["place"], float(seconds), shares, wrong))
            self._change(message["place"])

    def _change(self, place: int) -> None:
        if self._changes and place + 1 >= self._changes[0][0]:
            _, plane, rate_bps = self._changes.pop(0)
            self._lab.set_rate(plane, rate_bps)
            self._changed_after.append(place)

    def found(self) -> Found:
        """Return what the case has brought."""
        return Found(self._case, self._rows, self._calls, self._changed_after)
