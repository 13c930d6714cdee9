# SPDX-License-Identifier: Apache-2.0
"""Parameters of actions: checked, and in the engine's format."""

from __future__ import annotations

from collections.abc import Sequence

from railweave.switch.errors import OutOfRange
from railweave.switch.pipeline.matches import LOW64
from railweave.switch.pipeline.values import Number, as_int
from railweave.switch.program import Action


def arguments(action: Action, params: Sequence[Number]) -> tuple[int, ...]:
    """Return parameters as numbers; ValueError for too few or too many, OutOfRange for a wide value."""
    if len(params) != len(action.parameters):
        raise ValueError(
            f"action {action.name!r} takes {len(action.parameters)} parameters, not {len(params)}"
        )
    values = tuple(as_int(value) for value in params)
    for value, parameter in zip(values, action.parameters, strict=True):
        if not 0 <= value < 1 << parameter.bitwidth:
            raise OutOfRange(
                f"parameter {parameter.name!r} has {parameter.bitwidth} bits; {value} does not fit"
            )
    return values


def words(action: Action, values: tuple[int, ...]) -> list[int]:
    """Return parameters in the engine's format: 64-bit words, least significant first."""
    result: list[int] = []
    for value, parameter in zip(values, action.parameters, strict=True):
        result += [(value >> shift) & LOW64 for shift in range(0, max(parameter.bitwidth, 1), 64)]
    return result
