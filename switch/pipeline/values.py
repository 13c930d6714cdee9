# SPDX-License-Identifier: Apache-2.0
"""The values that a pipeline takes and returns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from railweave.switch.errors import OutOfRange
from railweave.switch.program import Action, Match

LOW64 = (1 << 64) - 1
Number = int | bytes  # bytes are in network order
Params = Sequence[Number]


def as_int(value: Number) -> int:
    """Return the number that `value` stands for."""
    return value if isinstance(value, int) else int.from_bytes(value, "big")


def arguments(action: Action, params: Params) -> tuple[int, ...]:
    """Return an action's parameters as numbers.

    ValueError for too few or too many, OutOfRange for a value that is too wide.
    """
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


class CounterValue(NamedTuple):
    """A counter's cell."""

    packets: int
    bytes: int


@dataclass(frozen=True)
class Replica:
    """One copy of a multicast or cloned packet: where it goes, and its `egress_rid`."""

    port: int
    instance: int = 0


@dataclass(frozen=True)
class MeterConfig:
    """Two rates of a meter (RFC 2698), in packets or bytes per second, and the sizes of their buckets."""

    cir: int
    cburst: int
    pir: int
    pburst: int

    def __post_init__(self) -> None:
        """Raise ValueError for rates that BMv2 refuses, too."""
        if any(not 0 <= number < 1 << 63 for number in (self.cir, self.cburst, self.pir, self.pburst)):
            raise ValueError(f"rates and bursts of a meter are 0 or more, and have 63 bits, but got {self}")
        if self.cir > self.pir:
            raise ValueError(f"the peak rate of a meter is at least the committed rate, but got {self}")


@dataclass(frozen=True)
class WeightedAction:
    """An action of a one-shot set, with its share of the packets; left out while `watch_port` is down."""

    action: str
    params: tuple[int, ...] = ()
    weight: int = 1
    watch_port: int | None = None
    old_watch: bool = False  # a controller named the port in the deprecated field `watch`


class GroupMember(NamedTuple):
    """A member's place in a group; it is left out while `watch_port` is down."""

    member_id: int
    weight: int = 1
    watch_port: int | None = None
    old_watch: bool = False  # as in WeightedAction


@dataclass(frozen=True)
class Group:
    """A group of an action profile. `max_size` limits the sum of weights; 0: the group sets no limit."""

    members: tuple[GroupMember, ...]
    max_size: int = 0


@dataclass(frozen=True)
class Target:
    """The effect of a table entry: an action, a member, a group, a one-shot set, or nothing."""

    action: str | None = None
    params: tuple[int, ...] = ()
    member: int | None = None
    group: int | None = None
    action_set: tuple[WeightedAction, ...] | None = None
    selection_mode: int = 0  # of the action set, as a controller wrote it
    size_semantics: int = 0


@dataclass(frozen=True)
class Opaque:
    """Data of a controller that a switch does not understand, but gives back."""

    metadata: bytes = b""
    controller_metadata: int = 0


NO_OPAQUE = Opaque()


@dataclass(frozen=True)
class Entry:
    """An entry of a table, or its default entry: that has no handle (NONE) and no matches."""

    handle: int
    matches: tuple[Match, ...]
    priority: int
    target: Target
    const: bool = False
    idle_timeout_ns: int = 0
    meter: MeterConfig | None = None  # None: always green
    opaque: Opaque = NO_OPAQUE


@dataclass(frozen=True)
class Digest:
    """A digest: the field list's name and the values of its fields."""

    name: str
    values: tuple[int, ...]
