# SPDX-License-Identifier: Apache-2.0
"""Comparison of the embedded engine, interpreted and compiled, with BMv2 on the same input."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from differential.generate import Program
from vectors import bmv2
from vectors.case import Case
from vectors.embedded import Embedded
from vectors.record import Refused, compile_program
from vectors.steps import Call, Frames, Packet, Step

from railweave.switch.errors import UnsupportedConstruct
from railweave.switch.pipeline import Pipeline

CHUNK = 4096  # packets that are generated and compared at a time
QUEUE = 40  # copies that one of BMv2's queues, which hold 64, never loses


@dataclass(frozen=True)
class Difference:
    """A step that two switches answer differently."""

    step: Step
    embedded: object
    reference: object

    def __str__(self) -> str:
        return f"{self.step}\n  embedded {self.embedded}\n  BMv2     {self.reference}"


@dataclass(frozen=True)
class Outcome:
    """The outcome of one program."""

    packets: int = 0
    frames: int = 0
    difference: Difference | None = None
    refused: str | None = None  # by the embedded switch, with the reason
    invalid: str | None = None  # p4c's complaint

    def __str__(self) -> str:
        if self.invalid or self.refused:
            return f"not for p4c: {self.invalid}" if self.invalid else f"refused: {self.refused}"
        return f"{'DIFFERS' if self.difference else 'equal'}, {self.packets} packets, {self.frames} out"


def run(program: Program, count: int, case: Case) -> Outcome:
    """Compile a program into the case's folder. Send packets up to the first difference."""
    case.source.parent.mkdir(parents=True, exist_ok=True)
    case.source.write_text(program.text)
    try:
        compile_program(case.source)
    except Refused as refusal:
        return Outcome(invalid=next(line for line in str(refusal).splitlines() if "error" in line))
    try:
        embedded = Embedded(case.schema, Pipeline.load(case.json.read_bytes()))
        compiled = Embedded(case.schema, Pipeline.load(case.json.read_bytes()), compiled=True)
    except UnsupportedConstruct as refusal:
        return Outcome(refused=str(refusal))
    except Exception as error:  # a difference, because BMv2 loads the program
        return Outcome(difference=Difference(Call("load", {}), repr(error), "loads"))
    with bmv2.running(case.p4info, case.json) as reference:
        for step in program.setup:
            for switch in (embedded, compiled, reference):
                switch.do(step)
        return _compare(program, itertools.islice(program.packets(), count), embedded, compiled, reference)


def _compare(
    program: Program,
    packets: Iterator[Packet],
    embedded: Embedded,
    compiled: Embedded,
    reference: bmv2.Bmv2,
) -> Outcome:
    sent = frames = 0
    while chunk := list(itertools.islice(packets, CHUNK)):
        ours = embedded.packets(chunk)
        for packet, mine, other in zip(chunk, ours, compiled.packets(chunk), strict=True):
            if mine != other:
                return Outcome(sent, frames, Difference(packet, mine, f"compiled: {other}"))
        bursts = _bursts(ours, 1 if program.shape.features.in_step else bmv2.BURST)
        for start, end in bursts:
            theirs = reference.packets(chunk[start:end])
            for packet, mine, other in zip(chunk[start:end], ours[start:end], theirs, strict=True):
                sent += 1
                if program.shape.features.unordered:
                    mine, other = sorted(mine), sorted(other)  # noqa: PLW2901
                if mine != other:
                    return Outcome(sent, frames, Difference(packet, mine, other))
                frames += len(mine)
    for step in program.reads:
        mine = embedded.do(step)
        for other in (compiled.do(step), reference.do(step)):
            if mine != other:
                return Outcome(sent, frames, Difference(step, mine, other))
    return Outcome(sent, frames)


def _bursts(results: Iterable[Frames], most: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of packets whose copies fit into BMv2's queues together."""
    start, copies = 0, dict[int, int]()
    end = 0
    for end, frames in enumerate(results):
        more = {
            port: copies.get(port, 0) + sum(f[0] == port for f in frames) for port in {f[0] for f in frames}
        }
        if end > start and (end - start >= most or any(number > QUEUE for number in more.values())):
            yield start, end
            start, copies = end, {port: sum(f[0] == port for f in frames) for port in more}
        else:
            copies |= more
    yield start, end + 1


def folder(root: Path, seed: int) -> Case:
    """Return the case for a seed's program."""
    return Case(root / "differential" / f"seed{seed}.p4")
