# SPDX-License-Identifier: Apache-2.0
"""What all parts of a pipeline share: the program, its engine and a lock."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence

from railweave._native.engine import Engine
from railweave.switch.pipeline.matches import LOW64
from railweave.switch.pipeline.values import Number, as_int
from railweave.switch.program import Action, Program, TableInfo


class Base:
    """A program in an engine. Control-plane state is behind `_lock`; the engine has a lock of its own."""

    def __init__(self, program: Program, plan: bytes) -> None:
        """Make an engine for the plan."""
        self.program = program
        self.native = Engine(plan)
        self._lock = threading.RLock()

    def _table(self, name: str) -> TableInfo:
        if name not in self.program.tables:
            raise ValueError(f"no table {name!r}; the program has {', '.join(sorted(self.program.tables))}")
        return self.program.tables[name]

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Hold packets back meanwhile: each sees the tables either before or after. Not reentrant."""
        self.native.freeze()
        try:
            yield
        finally:
            self.native.thaw()

    def _now(self, now_us: int | None) -> int:
        """`now_us`, or the time of the last packet."""
        return self.native.now_us() if now_us is None else now_us


def arguments(action: Action, params: Sequence[Number]) -> tuple[int, ...]:
    """Parameters as numbers; ValueError for a wrong number of them, or one that does not fit."""
    if len(params) != len(action.parameters):
        raise ValueError(
            f"action {action.name!r} takes {len(action.parameters)} parameters, not {len(params)}"
        )
    values = tuple(as_int(value) for value in params)
    for value, parameter in zip(values, action.parameters, strict=True):
        if not 0 <= value < 1 << parameter.bitwidth:
            raise ValueError(
                f"parameter {parameter.name!r} has {parameter.bitwidth} bits; {value} does not fit"
            )
    return values


def words(action: Action, values: tuple[int, ...]) -> list[int]:
    """Parameters in the engine's format: 64-bit words, least significant first."""
    result: list[int] = []
    for value, parameter in zip(values, action.parameters, strict=True):
        result += [(value >> shift) & LOW64 for shift in range(0, max(parameter.bitwidth, 1), 64)]
    return result
