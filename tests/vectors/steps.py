# SPDX-License-Identifier: Apache-2.0
"""Steps that a test does to a switch with a program, as data. Tests compare the result of every step.

A step is a frozen dataclass. In JSON it is an object with the class's name in lower case and its members.
Names come from the P4 program; a unique suffix is enough. Values are integers. In a match they may also be
strings: `value/prefix` (lpm), `value/&mask` (ternary), `low...high` (range). A field that is left out matches
anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, asdict, dataclass, field, fields
from typing import Any, TypeAlias

Values: TypeAlias = Mapping[str, int]
MatchValues: TypeAlias = Mapping[str, int | str]
Frames: TypeAlias = list[tuple[int, str]]  # port and bytes in hex


@dataclass(frozen=True)
class Step:
    """A step. The result of most steps is None."""


@dataclass(frozen=True)
class Packet(Step):
    """Send a packet (in hex). The result is the output, in a stable sort by port."""

    port: int
    data: str


@dataclass(frozen=True)
class Insert(Step):
    """Add a table entry: with an action, a member or a group of its profile, or a set of weighted actions."""

    table: str
    match: MatchValues
    action: str | None = None
    params: Values = field(default_factory=dict)
    priority: int = 0
    member: int | None = None
    group: int | None = None
    one_shot: Sequence[tuple[str, Values, int]] = ()  # action, parameters, weight


@dataclass(frozen=True)
class Modify(Step):
    """Give an entry another action."""

    table: str
    match: MatchValues
    action: str
    params: Values = field(default_factory=dict)
    priority: int = 0


@dataclass(frozen=True)
class Delete(Step):
    """Remove an entry."""

    table: str
    match: MatchValues
    priority: int = 0


@dataclass(frozen=True)
class Default(Step):
    """Set the default action of a table."""

    table: str
    action: str
    params: Values = field(default_factory=dict)


@dataclass(frozen=True)
class Member(Step):
    """Add an action to an action profile."""

    profile: str
    member: int
    action: str
    params: Values = field(default_factory=dict)


@dataclass(frozen=True)
class Group(Step):
    """Make a group of (member, weight) pairs of an action selector."""

    profile: str
    group: int
    members: Sequence[tuple[int, int]]
    max_size: int = 0


@dataclass(frozen=True)
class Multicast(Step):
    """Make a multicast group of (port, instance) pairs."""

    group: int
    replicas: Sequence[tuple[int, int]]


@dataclass(frozen=True)
class CloneSession(Step):
    """Make a clone session of (port, instance) pairs. `bytes` > 0 truncates the copies."""

    session: int
    replicas: Sequence[tuple[int, int]]
    bytes: int = 0


@dataclass(frozen=True)
class Meter(Step):
    """Configure a cell of a meter: committed and peak rate per second, and the bursts."""

    name: str
    index: int
    cir: int
    cburst: int
    pir: int
    pburst: int


@dataclass(frozen=True)
class DirectMeter(Step):
    """Configure the meter of an entry."""

    table: str
    match: MatchValues
    cir: int
    cburst: int
    pir: int
    pburst: int
    priority: int = 0


@dataclass(frozen=True)
class Counter(Step):
    """Read a cell of a counter; the result is [packets, bytes]."""

    name: str
    index: int


@dataclass(frozen=True)
class DirectCounter(Step):
    """Read an entry's counter; the result is [packets, bytes]."""

    table: str
    match: MatchValues
    priority: int = 0


@dataclass(frozen=True)
class Digests(Step):
    """Take the messages of a digest since the last such step. Each is a list of hex numbers."""

    name: str


KINDS: dict[str, type[Step]] = {kind.__name__.lower(): kind for kind in Step.__subclasses__()}


def encode(step: Step) -> dict[str, Any]:
    """Return a step as JSON, without optional members that are empty."""
    values = asdict(step)
    for member in fields(step):
        if values[member.name] in (None, (), [], {}) and not _required(member):
            del values[member.name]
    return {"step": type(step).__name__.lower(), **values}


def decode(item: Mapping[str, Any]) -> Step:
    """Return the step of a JSON object, as the inverse of `encode`. Ignore other keys, such as `result`."""
    kind = KINDS[item["step"]]
    names = {f.name for f in fields(kind)}
    return kind(**{name: value for name, value in item.items() if name in names})


def _required(member: Field[Any]) -> bool:
    return member.default is MISSING and member.default_factory is MISSING
