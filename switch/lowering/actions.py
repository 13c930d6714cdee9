# SPDX-License-Identifier: Apache-2.0
"""The statements of actions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from railweave.switch.lowering.expr import Expr
from railweave.switch.lowering.fields import Field
from railweave.switch.program import ArrayInfo


@dataclass(frozen=True)
class Assign:
    """field = value, truncated to the field's width."""

    target: Field
    value: Expr


@dataclass(frozen=True)
class RegisterRead:
    """field = array[index]; nothing happens if the index is out of range."""

    target: Field
    array: ArrayInfo
    index: Expr


@dataclass(frozen=True)
class RegisterWrite:
    """array[index] = value; nothing happens if the index is out of range."""

    array: ArrayInfo
    index: Expr
    value: Expr


@dataclass(frozen=True)
class Jump:
    """Go on at statement `target` if the condition is false (None: always)."""

    target: int
    condition: Expr | None


@dataclass(frozen=True)
class Effect:
    """Anything else: an engine instruction with the objects and values that it takes.

    `target` gets the result of those that have one.
    """

    kind: str
    objects: tuple[Any, ...] = ()
    values: tuple[Expr, ...] = ()
    target: Field | None = None


@dataclass(frozen=True)
class Choice:
    """The statements of the first alternative with a true condition, if there is one."""

    alternatives: tuple[tuple[Expr, tuple[Statement, ...]], ...]


Statement = Assign | RegisterRead | RegisterWrite | Jump | Effect | Choice


def reads(statement: Statement) -> list[Expr]:
    """Return the values that a statement computes."""
    match statement:
        case Assign(value=value):
            return [value]
        case RegisterRead(index=index):
            return [index]
        case RegisterWrite(index=index, value=value):
            return [index, value]
        case Jump(condition=condition):
            return [] if condition is None else [condition]
        case Effect(values=values):
            return list(values)
        case Choice(alternatives=alternatives):
            inner = [node for _, body in alternatives for part in body for node in reads(part)]
            return [condition for condition, _ in alternatives] + inner
