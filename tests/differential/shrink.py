# SPDX-License-Identifier: Apache-2.0
"""Makes a difference smaller: fewer packets, then fewer statements and entries."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from differential.compare import Difference, run
from differential.generate import Program
from vectors.bmv2 import SwitchFailed
from vectors.case import Case
from vectors.steps import Packet, Step

T = TypeVar("T")
LIMIT_S = 120.0


def shrink(program: Program, difference: Difference, case: Case) -> str:
    """Save a small program that still differs as a golden case beside `case`. Return a summary."""
    small = Case(case.source.with_stem(f"{case.source.stem}-small"))
    end = time.monotonic() + LIMIT_S
    packets = list(difference.before)
    if isinstance(difference.step, Packet):
        packets.append(difference.step)

    def differs(candidate: Program, given: list[Packet]) -> bool:
        if time.monotonic() > end:
            return False
        try:
            return run(candidate, 0, small, given).difference is not None
        except SwitchFailed:
            return False

    packets = fewer(packets, lambda given: differs(program, given))
    _fewer_statements(program, lambda: differs(program, packets))
    setup = fewer(list(program.setup), lambda steps: differs(replace(program, setup=tuple(steps)), packets))
    program = replace(program, setup=tuple(setup))
    end += LIMIT_S
    last = run(program, 0, small, packets).difference
    results: list[tuple[Step, object]] = [(step, None) for step in setup]
    results += [(p, None) for p in packets]  # only BMv2's answer to the last packet is known
    if last:
        results[-1] = (last.step, last.reference)
    small.save(results)
    lines = len(program.template.render().splitlines())
    return f"{small.source}: {lines} lines, {len(setup)} entries, {len(packets)} packets\n  {last}"


def fewer(items: list[T], fails: Callable[[list[T]], bool]) -> list[T]:
    """Remove halves, quarters … as long as the rest still fails (delta debugging; Zeller, 1999)."""
    size = max(1, len(items) // 2)
    if len(items) > 1 and fails(items[-1:]):
        return items[-1:]
    while size:
        at = 0
        while at < len(items):
            without = items[:at] + items[at + size :]
            if without and fails(without):
                items = without
            else:
                at += size
        size //= 2
    return items


def _fewer_statements(program: Program, fails: Callable[[], bool]) -> None:
    """Remove statements that the difference does not need, outer statements first."""
    for block in program.template.all_blocks():
        for statement in list(block.statements):
            if statement.kept:
                continue
            at = block.statements.index(statement)
            del block.statements[at]
            if not fails():
                block.statements.insert(at, statement)
