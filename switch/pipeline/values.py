# SPDX-License-Identifier: Apache-2.0
"""The values that a pipeline takes and returns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from railweave.switch.program import FieldMatch

Number = int | bytes  # bytes are in network order


def as_int(value: Number) -> int:
    """The number that `value` stands for."""
    return value if isinstance(value, int) else int.from_bytes(value, "big")


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
        """ValueError for rates that BMv2 refuses, too."""
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


@dataclass(frozen=True)
class Member:
    """A member of an action profile."""

    action: str
    params: tuple[int, ...]


class GroupMember(NamedTuple):
    """A member's place in a group; it is left out while `watch_port` is down."""

    member_id: int
    weight: int = 1
    watch_port: int | None = None


@dataclass(frozen=True)
class Group:
    """A group of an action profile. `max_size` limits the sum of weights; 0: the group sets no limit."""

    members: tuple[GroupMember, ...]
    max_size: int = 0


@dataclass(frozen=True)
class Target:
    """What a table entry does: one of an action, a member, a group and a one-shot set."""

    action: str | None = None
    params: tuple[int, ...] = ()
    member: int | None = None
    group: int | None = None
    action_set: tuple[WeightedAction, ...] | None = None


@dataclass(frozen=True)
class Entry:
    """An entry as kept in a table; `matches` are normalised (bits outside masks and prefixes are 0)."""

    handle: int
    matches: tuple[FieldMatch, ...]
    target: Target
    priority: int
    const: bool = False
    idle_timeout_ns: int = 0


@dataclass(frozen=True)
class Digest:
    """A digest: the field list's name and the values of its fields."""

    name: str
    values: tuple[int, ...]


Params = Sequence[Number]
