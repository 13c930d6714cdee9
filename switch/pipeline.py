# SPDX-License-Identifier: Apache-2.0
"""One loaded program with its tables and state: the only face of the engine."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from railweave._native.engine import NONE, Engine
from railweave.switch.errors import DuplicateEntry, ImmutableTable, TableFull, UnknownEntry
from railweave.switch.lowering import lower
from railweave.switch.program import (
    Action,
    ArrayInfo,
    FieldMatch,
    KeyField,
    MatchType,
    MeterInfo,
    Program,
    TableInfo,
)

LOW64 = (1 << 64) - 1


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
class MeterRate:
    """One rate of a meter: tokens (packets or bytes) per second, and the size of the bucket."""

    per_second: float
    burst: int


@dataclass(frozen=True)
class Match:
    """What an entry wants of one key field; made by `exact`, `lpm`, `ternary`, `range_` and `optional`."""

    kind: MatchType
    value: int = 0
    mask: int = 0
    prefix: int = 0
    high: int = 0
    wild: bool = False  # matches anything


def _int(value: int | bytes) -> int:
    return value if isinstance(value, int) else int.from_bytes(value, "big")


def exact(value: int | bytes) -> Match:
    """The field equals `value`."""
    return Match(MatchType.EXACT, _int(value))


def lpm(value: int | bytes, prefix: int) -> Match:
    """The first `prefix` bits of the field are those of `value`."""
    return Match(MatchType.LPM, _int(value), prefix=prefix)


def ternary(value: int | bytes, mask: int | bytes) -> Match:
    """field & mask == value & mask."""
    return Match(MatchType.TERNARY, _int(value), mask=_int(mask))


def range_(low: int | bytes, high: int | bytes) -> Match:
    """low ≤ field ≤ high."""
    return Match(MatchType.RANGE, _int(low), high=_int(high))


def optional(value: int | bytes | None) -> Match:
    """The field equals `value`, or is anything if that is None. (The key field is ternary to the engine.)"""
    if value is None:
        return Match(MatchType.TERNARY, wild=True)
    return Match(MatchType.TERNARY, _int(value), mask=-1)


@dataclass(frozen=True)
class Entry:
    """An entry as it stands in a table; `matches` are normalised (bits outside masks and prefixes are 0)."""

    handle: int
    matches: tuple[FieldMatch, ...]
    action: str
    params: tuple[int, ...]
    priority: int
    const: bool


class _Key(NamedTuple):
    """A key as the engine wants it."""

    value: list[int]
    mask: list[int]
    ranges: list[tuple[int, int, int, int, int]]
    prefix: int


class Pipeline:
    """A program in a switch. All methods may be called from any thread, also while packets flow."""

    def __init__(self, program: Program, plan: bytes) -> None:
        """Make an engine for the plan and install the program's own entries; use `load`."""
        self.program = program
        self.native = Engine(plan)
        self._lock = threading.RLock()
        self._entries: dict[str, dict[int, Entry]] = {name: {} for name in program.tables}
        self._keys: dict[str, dict[tuple[tuple[FieldMatch, ...], int], int]] = {
            name: {} for name in program.tables
        }
        self._defaults: dict[str, tuple[str, tuple[int, ...]] | None] = {}
        self._groups: dict[int, tuple[Replica, ...]] = {}
        self._sessions: dict[int, tuple[Replica, ...]] = {}
        for table in program.tables.values():
            self._reset_default(table)
            for row in table.const_entries:
                priority = row.priority if table.needs_priority else 0
                self._install(table, row.matches, row.action, row.parameters, priority, const=True)

    @classmethod
    def load(cls, bmv2_json: bytes) -> Pipeline:
        """Lower a BMv2 JSON program and load it; raises UnsupportedConstruct or InvalidProgram."""
        return cls(*lower(bmv2_json))

    # Table entries.

    def insert(
        self,
        table: str,
        match: Sequence[Match],
        action: str,
        params: Sequence[int | bytes] = (),
        priority: int = 0,
    ) -> int:
        """Add an entry; its handle. Of entries that match alike the one with the greater priority wins."""
        info = self._table(table)
        if info.immutable:
            raise ImmutableTable(f"table {table!r} has constant entries only")
        if len(match) != len(info.key):
            raise ValueError(f"table {table!r} has {len(info.key)} key fields, not {len(match)}")
        matches = tuple(_normalise(part, key) for part, key in zip(match, info.key, strict=True))
        if info.needs_priority and priority <= 0:
            raise ValueError(f"an entry of table {table!r} needs a priority of at least 1, not {priority}")
        if not info.needs_priority and priority != 0:
            raise ValueError(f"an entry of table {table!r} has no priority, but {priority} was given")
        values = _arguments(info.action(action)[1], params)
        return self._install(info, matches, action, values, priority, const=False)

    def _install(
        self,
        table: TableInfo,
        matches: tuple[FieldMatch, ...],
        action: str,
        params: tuple[int, ...],
        priority: int,
        const: bool,
    ) -> int:
        number, description = table.action(action)
        key = _encode(table, matches)
        with self._lock:
            if (matches, priority) in self._keys[table.name]:
                raise DuplicateEntry(f"table {table.name!r} has an entry with this key already")
            if len(self._entries[table.name]) >= table.size:
                raise TableFull(f"table {table.name!r} is full: it holds {table.size} entries")
            rank = priority if table.needs_priority else key.prefix
            handle = self.native.insert(
                table.index, key.value, key.mask, key.ranges, rank, number, _words(description, params)
            )
            self._entries[table.name][handle] = Entry(handle, matches, action, params, priority, const)
            self._keys[table.name][matches, priority] = handle
            return handle

    def find(self, table: str, match: Sequence[Match], priority: int = 0) -> int | None:
        """The handle of the entry with this key, if there is one."""
        info = self._table(table)
        if len(match) != len(info.key):
            raise ValueError(f"table {table!r} has {len(info.key)} key fields, not {len(match)}")
        matches = tuple(_normalise(part, key) for part, key in zip(match, info.key, strict=True))
        with self._lock:
            return self._keys[table].get((matches, priority))

    def modify(self, table: str, handle: int, action: str, params: Sequence[int | bytes] = ()) -> None:
        """Give an entry another action."""
        info = self._table(table)
        number, description = info.action(action)
        values = _arguments(description, params)
        with self._lock:
            entry = self._mutable(info, handle)
            self.native.modify(info.index, handle, number, _words(description, values))
            changed = Entry(handle, entry.matches, action, values, entry.priority, const=False)
            self._entries[table][handle] = changed

    def delete(self, table: str, handle: int) -> None:
        """Remove an entry."""
        info = self._table(table)
        with self._lock:
            entry = self._mutable(info, handle)
            self.native.remove(info.index, handle)
            del self._entries[table][handle]
            del self._keys[table][entry.matches, entry.priority]

    def _mutable(self, table: TableInfo, handle: int) -> Entry:
        entry = self._entries[table.name].get(handle)
        if entry is None:
            raise UnknownEntry(f"table {table.name!r} has no entry {handle}")
        if entry.const:
            raise ImmutableTable(f"entry {handle} of table {table.name!r} is constant")
        return entry

    def entries(self, table: str) -> list[Entry]:
        """All entries in the order of their making, constant ones included."""
        self._table(table)
        with self._lock:
            return list(self._entries[table].values())

    # Default actions.

    def set_default(self, table: str, action: str | None, params: Sequence[int | bytes] = ()) -> None:
        """The action of a miss; None: as the program declares it."""
        info = self._table(table)
        if info.default is not None and info.default.const and action is not None:
            raise ImmutableTable(f"the default action of table {table!r} is constant")
        with self._lock:
            if action is None:
                self._reset_default(info)
                return
            number, description = info.action(action)
            values = _arguments(description, params)
            self.native.set_default(info.index, number, _words(description, values))
            self._defaults[table] = (action, values)

    def default(self, table: str) -> tuple[str, tuple[int, ...]] | None:
        """The action of a miss and its parameters; None if a miss does nothing."""
        self._table(table)
        with self._lock:
            return self._defaults[table]

    def _reset_default(self, table: TableInfo) -> None:
        if table.default is None:
            self.native.set_default(table.index, NONE, [])
            self._defaults[table.name] = None
            return
        number, description = table.action(table.default.action)
        self.native.set_default(table.index, number, _words(description, table.default.parameters))
        self._defaults[table.name] = (table.default.action, table.default.parameters)

    # Counters, meters, registers.

    def direct_counter(self, table: str, handle: int) -> CounterValue:
        """Packets and bytes that hit an entry."""
        info = self._counted(table, handle)
        return CounterValue(*self.native.direct_counter(info.index, handle))

    def set_direct_counter(self, table: str, handle: int, value: CounterValue) -> None:
        """Write an entry's counter."""
        info = self._counted(table, handle)
        self.native.set_direct_counter(info.index, handle, value.packets, value.bytes)

    def _counted(self, table: str, handle: int) -> TableInfo:
        info = self._table(table)
        if not info.direct_counter:
            raise ValueError(f"table {table!r} has no direct counter")
        with self._lock:
            if handle not in self._entries[table]:
                raise UnknownEntry(f"table {table!r} has no entry {handle}")
        return info

    def counter(self, name: str, index: int) -> CounterValue:
        """A cell of an indirect counter."""
        return CounterValue(*self.native.counter(self._index(self.program.counters, name, index), index))

    def set_counter(self, name: str, index: int, value: CounterValue) -> None:
        """Write a cell of an indirect counter."""
        number = self._index(self.program.counters, name, index)
        self.native.set_counter(number, index, value.packets, value.bytes)

    def register(self, name: str, index: int) -> int:
        """A cell of a register array."""
        words = self.native.read_register(self._index(self.program.registers, name, index), index)
        return sum(word << (64 * position) for position, word in enumerate(words))

    def set_register(self, name: str, index: int, value: int) -> None:
        """Write a cell of a register array; ValueError if the value is too wide."""
        number = self._index(self.program.registers, name, index)
        width = self.program.registers[name].bitwidth
        if not 0 <= value < 1 << width:
            raise ValueError(f"register {name!r} holds {width} bits; {value} does not fit")
        words = [(value >> shift) & LOW64 for shift in range(0, width, 64)]
        self.native.write_register(number, index, words)

    def set_meter(self, name: str, index: int, rates: Sequence[MeterRate] | None) -> None:
        """Configure a cell of an indirect meter, slowest rate first; None: back to always green."""
        number = self._index(self.program.meters, name, index)
        self.native.set_meter(number, index, [(rate.per_second / 1e6, rate.burst) for rate in rates or ()])

    def set_direct_meter(self, table: str, handle: int, rates: Sequence[MeterRate] | None) -> None:
        """Configure the meter of an entry."""
        info = self._table(table)
        if info.direct_meter is None:
            raise ValueError(f"table {table!r} has no direct meter")
        if not any(entry.handle == handle for entry in self.entries(table)):
            raise UnknownEntry(f"table {table!r} has no entry {handle}")
        self.native.set_direct_meter(info.index, handle, [(r.per_second / 1e6, r.burst) for r in rates or ()])

    @staticmethod
    def _index(arrays: Mapping[str, ArrayInfo] | Mapping[str, MeterInfo], name: str, index: int) -> int:
        if name not in arrays:
            raise ValueError(f"no array {name!r}; the program has {', '.join(sorted(arrays))}")
        if not 0 <= index < arrays[name].size:
            raise ValueError(f"{name!r} has the indexes 0…{arrays[name].size - 1}, not {index}")
        return arrays[name].index

    # Packet replication.

    def multicast(self, group: int, replicas: Sequence[Replica] | None) -> None:
        """Create, replace or (None) delete a multicast group."""
        if not 1 <= group < 1 << 16:
            raise ValueError(f"multicast groups are 1…65535, not {group}")
        self._replicate(self._groups, group, replicas)
        self.native.set_multicast(group, [(r.port, r.instance) for r in replicas or ()])

    def clone_session(self, session: int, replicas: Sequence[Replica] | None) -> None:
        """Create, replace or (None) delete a clone session."""
        if not 0 <= session < 1 << 15:
            raise ValueError(f"clone sessions are 0…32767, not {session}")
        self._replicate(self._sessions, session, replicas)
        self.native.set_clone_session(session, [(r.port, r.instance) for r in replicas or ()])

    def _replicate(
        self, into: dict[int, tuple[Replica, ...]], number: int, replicas: Sequence[Replica] | None
    ) -> None:
        for replica in replicas or ():
            if not 0 <= replica.port < 1 << 16 or not 0 <= replica.instance < 1 << 16:
                raise ValueError(f"port and instance have 16 bits: {replica}")
        with self._lock:
            if replicas is None:
                into.pop(number, None)
            else:
                into[number] = tuple(replicas)

    def multicast_groups(self) -> dict[int, tuple[Replica, ...]]:
        """All multicast groups."""
        with self._lock:
            return dict(self._groups)

    def clone_sessions(self) -> dict[int, tuple[Replica, ...]]:
        """All clone sessions."""
        with self._lock:
            return dict(self._sessions)

    # Packets.

    def inject(self, port: int, packet: bytes, now_us: int = 0) -> list[tuple[int, bytes]]:
        """Run one packet to its end: all that leaves, as (port, packet)."""
        return [(int(to), bytes(out)) for to, out in self.native.inject(port, packet, now_us)]

    def seed(self, seed: int) -> None:
        """Make `random` repeatable."""
        self.native.seed(seed & LOW64)

    def _table(self, name: str) -> TableInfo:
        if name not in self.program.tables:
            raise ValueError(f"no table {name!r}; the program has {', '.join(sorted(self.program.tables))}")
        return self.program.tables[name]


def _arguments(action: Action, params: Sequence[int | bytes]) -> tuple[int, ...]:
    if len(params) != len(action.parameters):
        raise ValueError(
            f"action {action.name!r} takes {len(action.parameters)} parameters, not {len(params)}"
        )
    values = tuple(_int(value) for value in params)
    for value, parameter in zip(values, action.parameters, strict=True):
        if not 0 <= value < 1 << parameter.bitwidth:
            raise ValueError(
                f"parameter {parameter.name!r} has {parameter.bitwidth} bits; {value} does not fit"
            )
    return values


def _words(action: Action, values: tuple[int, ...]) -> list[int]:
    words: list[int] = []
    for value, parameter in zip(values, action.parameters, strict=True):
        words += [(value >> shift) & LOW64 for shift in range(0, max(parameter.bitwidth, 1), 64)]
    return words


def _normalise(match: Match, key: KeyField) -> FieldMatch:
    """Check a match against the key field, and clear the bits that do not count."""
    full = (1 << key.bitwidth) - 1
    if match.kind is not key.match:
        raise ValueError(f"key field {key.name!r} matches {key.match.value}, not {match.kind.value}")
    if not 0 <= match.value <= full or match.high > full or match.mask > full:
        raise ValueError(f"key field {key.name!r} has {key.bitwidth} bits; the value does not fit")
    if match.kind is MatchType.LPM:
        if not 0 <= match.prefix <= key.bitwidth:
            raise ValueError(f"a prefix of {key.name!r} has 0…{key.bitwidth} bits, not {match.prefix}")
        kept = full ^ (full >> match.prefix)
        return FieldMatch(value=match.value & kept, prefix=match.prefix)
    if match.kind is MatchType.TERNARY:
        mask = 0 if match.wild else match.mask & full
        return FieldMatch(value=match.value & mask, mask=mask)
    if match.kind is MatchType.RANGE:
        if match.value > match.high:
            raise ValueError(f"the range of {key.name!r} is empty: {match.value}…{match.high}")
        return FieldMatch(value=match.value, high=match.high)
    return FieldMatch(value=match.value)


def _encode(table: TableInfo, matches: tuple[FieldMatch, ...]) -> _Key:
    """Matches as words, masks and ranges of the engine's key."""
    encoded = _Key([0] * table.key_words, [0] * table.key_words, [], 0)
    prefix = 0
    for match, key in zip(matches, table.key, strict=True):
        full = (1 << key.bitwidth) - 1
        if key.match is MatchType.RANGE:
            encoded.ranges.append((key.word, key.shift, key.bitwidth, match.value, match.high))
            continue
        mask = full
        if key.match is MatchType.LPM:
            mask, prefix = full ^ (full >> match.prefix), match.prefix
        elif key.match is MatchType.TERNARY:
            mask = match.mask
        for i in range(key.words):
            encoded.value[key.word + i] |= ((match.value << key.shift) >> (64 * i)) & LOW64
            encoded.mask[key.word + i] |= ((mask << key.shift) >> (64 * i)) & LOW64
    return encoded._replace(prefix=prefix)
