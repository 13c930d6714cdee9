# SPDX-License-Identifier: Apache-2.0
"""A description of a loaded program for the control plane."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple


class MatchType(Enum):
    """How a key field matches. P4's `optional` is ternary in BMv2's JSON."""

    EXACT = "exact"
    LPM = "lpm"
    TERNARY = "ternary"
    RANGE = "range"


@dataclass(frozen=True)
class KeyField:
    """One field of a table's key; `word` and `shift` place it in the engine's key."""

    name: str
    match: MatchType
    bitwidth: int
    word: int
    shift: int

    @property
    def words(self) -> int:
        """Return how many 64-bit words the field needs."""
        return (self.bitwidth + 63) // 64


@dataclass(frozen=True)
class Parameter:
    """A parameter of an action; `word` is the first 64-bit word that holds it."""

    name: str
    bitwidth: int
    word: int


@dataclass(frozen=True)
class Action:
    """An action and its parameters, in order."""

    name: str
    parameters: tuple[Parameter, ...]


class Match(NamedTuple):
    """The match of one key field. Bits outside the mask or the prefix are 0.

    exact: value. lpm: value and prefix length. ternary: value and mask. range: value (low) and high.
    """

    kind: MatchType
    value: int = 0
    mask: int = 0
    prefix: int = 0
    high: int = 0


@dataclass(frozen=True)
class ConstEntry:
    """An entry that the program itself installs. Greater priority wins, as in P4Runtime."""

    matches: tuple[Match, ...]
    action: str
    parameters: tuple[int, ...]
    priority: int


@dataclass(frozen=True)
class DefaultAction:
    """The action of a miss as the program declares it."""

    action: str
    parameters: tuple[int, ...]
    const: bool
    const_action: bool = False  # the parameters may be changed, the action may not


@dataclass(frozen=True)
class TableInfo:
    """A match-action table."""

    name: str
    index: int
    key: tuple[KeyField, ...]
    key_words: int
    actions: tuple[Action, ...]
    size: int
    default: DefaultAction | None = None
    const_entries: tuple[ConstEntry, ...] = ()
    immutable: bool = False
    direct_counter: bool = False
    direct_meter: str | None = None
    profile: str | None = None  # its action profile, if entries name members and groups
    idle_timeouts: bool = False

    @property
    def needs_priority(self) -> bool:
        """Return whether entries have a priority (the key has a ternary or range field)."""
        return any(part.match in (MatchType.TERNARY, MatchType.RANGE) for part in self.key)

    def action(self, name: str) -> tuple[int, Action]:
        """Return index and description of an action; ValueError lists the table's actions."""
        for index, action in enumerate(self.actions):
            if action.name == name:
                return index, action
        known = ", ".join(action.name for action in self.actions)
        raise ValueError(f"table {self.name!r} has no action {name!r}; it has {known}")


@dataclass(frozen=True)
class ArrayInfo:
    """An indirect counter or register array. `width` is in bits, 0 for counters."""

    name: str
    index: int
    size: int
    width: int = 0

    @property
    def element_bytes(self) -> int:
        """Return the size of a register as an element of a vector in memory; 0 if it cannot be one."""
        return 0 if self.width > 64 else 4 if self.width <= 32 else 8


@dataclass(frozen=True)
class MeterInfo:
    """A meter array; `table` is set if it is direct."""

    name: str
    index: int
    size: int
    rates: int
    unit: str
    table: str | None = None


@dataclass(frozen=True)
class ValueSetInfo:
    """A parser value set for up to `size` members; `key` describes their fields."""

    name: str
    index: int
    key: tuple[KeyField, ...]
    key_words: int
    size: int


@dataclass(frozen=True)
class ProfileInfo:
    """An action profile; with a selector entries may name groups, too."""

    name: str
    size: int
    selector: bool


@dataclass(frozen=True)
class DigestInfo:
    """A list of fields that a packet can send to the control plane; `bitwidths` of its fields."""

    name: str
    number: int
    bitwidths: tuple[int, ...]


@dataclass(frozen=True)
class Fusion:
    """The vector instructions that an action was fused into, for inspection, and the elements of each.

    `scalar` says which outputs stay scalar, and why.
    """

    action: str
    vectors: tuple[tuple[str, int], ...]
    scalar: tuple[str, ...]


@dataclass(frozen=True)
class Program:
    """All that a control plane can address, by name."""

    name: str
    tables: dict[str, TableInfo]
    actions: dict[str, Action]
    counters: dict[str, ArrayInfo]
    registers: dict[str, ArrayInfo]
    meters: dict[str, MeterInfo]
    fusions: tuple[Fusion, ...] = field(default=())
    value_sets: dict[str, ValueSetInfo] = field(default_factory=dict)
    messages: tuple[str, ...] = ()  # of log_msg and assertions: see lowering.messages
    profiles: dict[str, ProfileInfo] = field(default_factory=dict)
    digests: dict[int, DigestInfo] = field(default_factory=dict)  # by number
    errors: dict[str, int] = field(default_factory=dict)  # numbers of the parser's errors
