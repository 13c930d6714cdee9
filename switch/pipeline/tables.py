# SPDX-License-Identifier: Apache-2.0
"""Table entries and default actions."""

from __future__ import annotations

import copy
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Self

from railweave._native.engine import NONE, Engine
from railweave.switch.errors import DuplicateEntry, ImmutableTable, TableFull, UnknownEntry
from railweave.switch.pipeline.arrays import rates
from railweave.switch.pipeline.idle import IdleTimers
from railweave.switch.pipeline.matches import Match, encode, normalise
from railweave.switch.pipeline.parameters import arguments
from railweave.switch.pipeline.profiles import Profiles
from railweave.switch.pipeline.values import CounterValue, Entry, MeterConfig, Params, Target, WeightedAction
from railweave.switch.program import FieldMatch, MeterInfo, Program, TableInfo


class Tables:
    """All tables of a pipeline, with the program's own entries in them from the start."""

    def __init__(self, program: Program, engine: Engine, profiles: Profiles, lock: threading.RLock) -> None:
        """Install the program's entries and default actions."""
        self._program = program
        self._engine = engine
        self._profiles = profiles
        self._lock = lock
        self._entries: dict[str, dict[int, Entry]] = {name: {} for name in program.tables}
        self._keys: dict[str, dict[tuple[tuple[FieldMatch, ...], int], int]] = {
            name: {} for name in program.tables
        }
        self._defaults: dict[str, Target | None] = dict.fromkeys(program.tables)
        self._meters: dict[tuple[str, int], MeterConfig] = {}  # by table and handle
        self._timers = IdleTimers()
        for table in program.tables.values():
            self._reset_default(table)
            for row in table.const_entries:
                priority = row.priority if table.needs_priority else 0
                target = Target(row.action, row.parameters)
                self._install(table, Entry(NONE, row.matches, target, priority, const=True), 0)

    def insert(
        self,
        table: str,
        match: Sequence[Match],
        action: str | None = None,
        params: Params = (),
        priority: int = 0,
        *,
        member: int | None = None,
        group: int | None = None,
        action_set: Sequence[WeightedAction] | None = None,
        idle_timeout_ns: int = 0,
        now_us: int | None = None,
    ) -> int:
        """Add an entry; its handle. Of entries that match alike the one with the greater priority wins.

        An entry of a table with an action profile names a member, a group or a one-shot action set in place
        of an action. An entry that no packet hits for `idle_timeout_ns` (0: for ever) is listed by `expired`.
        """
        info = self._program.table(table)
        if info.immutable:
            raise ImmutableTable(f"table {table!r} has constant entries only")
        matches = normalise(info, match)
        if info.needs_priority and priority <= 0:
            raise ValueError(f"an entry of table {table!r} needs a priority of at least 1, not {priority}")
        if not info.needs_priority and priority != 0:
            raise ValueError(f"an entry of table {table!r} has no priority, but {priority} was given")
        target = _target(info, action, params, member, group, action_set)
        _check_timeout(info, idle_timeout_ns)
        entry = Entry(NONE, matches, target, priority, idle_timeout_ns=idle_timeout_ns)
        return self._install(info, entry, self._now(now_us))

    def _install(self, table: TableInfo, entry: Entry, now_us: int) -> int:
        """Add an entry, whose handle the engine gives."""
        key = encode(table, entry.matches)
        with self._lock:
            if (entry.matches, entry.priority) in self._keys[table.name]:
                raise DuplicateEntry(f"table {table.name!r} has an entry with this key already")
            if len(self._entries[table.name]) >= table.size:
                raise TableFull(f"table {table.name!r} is full: it holds {table.size} entries")
            call = self._profiles.call_of(table, entry.target)
            rank = entry.priority if table.needs_priority else key.prefix
            handle = self._engine.insert(
                table.index, key.value, key.mask, key.ranges, rank, call.number, call.parameters
            )
            self._profiles.use(table, handle, entry.target, call)
            if table.idle_timeouts:
                self._engine.set_idle_timeout(table.index, handle, 0, now_us)  # as if it had been hit
                self._timers.set((table.name, handle), _microseconds(entry.idle_timeout_ns), now_us)
            self._entries[table.name][handle] = replace(entry, handle=handle)
            self._keys[table.name][entry.matches, entry.priority] = handle
            return handle

    def key(self, table: str, match: Sequence[Match]) -> tuple[FieldMatch, ...]:
        """A match as entries have it: bits outside masks and prefixes are 0."""
        return normalise(self._program.table(table), match)

    def find(self, table: str, match: Sequence[Match], priority: int = 0) -> int | None:
        """The handle of the entry with this key, if there is one."""
        matches = self.key(table, match)
        with self._lock:
            return self._keys[table].get((matches, priority))

    def modify(
        self,
        table: str,
        handle: int,
        action: str | None = None,
        params: Params = (),
        *,
        member: int | None = None,
        group: int | None = None,
        action_set: Sequence[WeightedAction] | None = None,
        idle_timeout_ns: int | None = None,
        now_us: int | None = None,
    ) -> None:
        """Change an entry's action; a given time-out starts again."""
        info = self._program.table(table)
        target = _target(info, action, params, member, group, action_set)
        _check_timeout(info, idle_timeout_ns or 0)
        now_us = self._now(now_us)
        with self._lock:
            entry = self._mutable(info, handle)
            call = self._profiles.call_of(info, target)
            self._engine.modify(info.index, handle, call.number, call.parameters)
            self._profiles.release(info, handle, entry.target)
            self._profiles.use(info, handle, target, call)
            if idle_timeout_ns is None:
                idle_timeout_ns = entry.idle_timeout_ns
            elif info.idle_timeouts:
                self._timers.set((table, handle), _microseconds(idle_timeout_ns), now_us)
            self._entries[table][handle] = replace(entry, target=target, idle_timeout_ns=idle_timeout_ns)

    def delete(self, table: str, handle: int) -> None:
        """Remove an entry."""
        info = self._program.table(table)
        with self._lock:
            entry = self._mutable(info, handle)
            self._engine.remove(info.index, handle)
            self._timers.set((table, handle), 0, 0)
            self._profiles.release(info, handle, entry.target)
            self._meters.pop((table, handle), None)
            del self._entries[table][handle]
            del self._keys[table][entry.matches, entry.priority]

    def _mutable(self, table: TableInfo, handle: int) -> Entry:
        entry = self.entry(table.name, handle)
        if entry.const:
            raise ImmutableTable(f"entry {handle} of table {table.name!r} is constant")
        return entry

    def entry(self, table: str, handle: int) -> Entry:
        """The entry with this handle; UnknownEntry if there is none."""
        self._program.table(table)
        with self._lock:
            found = self._entries[table].get(handle)
        if found is None:
            raise UnknownEntry(f"table {table!r} has no entry {handle}")
        return found

    def entries(self, table: str) -> list[Entry]:
        """All entries in the order of their making, constant ones included."""
        self._program.table(table)
        with self._lock:
            return list(self._entries[table].values())

    def same(self, table: str, entry: Entry) -> int | None:
        """The handle of the entry with the same key as one of another pipeline, if there is one."""
        with self._lock:
            return self._keys[table].get((entry.matches, entry.priority))

    def unpaired(self, table: str, paired: Mapping[int, int]) -> list[Entry]:
        """The entries whose handles are not in `paired`."""
        with self._lock:
            entries = self._entries[table]
            return [entries[handle] for handle in entries.keys() - paired.keys()]

    def snapshot(self) -> Self:
        """Entries, default actions and meters as they are now, to be read only."""
        view = copy.copy(self)
        view._entries = {name: dict(entries) for name, entries in self._entries.items()}
        view._keys = {name: dict(keys) for name, keys in self._keys.items()}
        view._defaults = dict(self._defaults)
        view._meters = dict(self._meters)
        return view

    def _now(self, now_us: int | None) -> int:
        """`now_us`, or the time of the last packet."""
        return self._engine.now_us() if now_us is None else now_us

    # Idle time-outs.

    def time_since_last_hit_ns(self, table: str, handle: int, now_us: int | None = None) -> int:
        """How long ago a packet hit the entry, or the entry was made."""
        info = self._program.table(table)
        self.entry(table, handle)
        if not info.idle_timeouts:
            raise ValueError(f"table {table!r} has no idle time-outs")
        return max(0, self._now(now_us) - self._last_hit_us(table, handle)) * 1000

    def expired(self, now_us: int, most: int) -> tuple[list[tuple[str, Entry]], bool]:
        """Look at up to `most` entries. Return the idle ones with their tables, and whether more are due.

        An idle entry is returned again after each time-out, until a packet hits it.
        """
        with self._lock:
            found, more = self._timers.expired(now_us, self._last_hit_us, most)
            return [(table, self._entries[table][handle]) for table, handle in found], more

    def _last_hit_us(self, table: str, handle: int) -> int:
        return self._engine.last_hit_us(self._program.table(table).index, handle)

    # Counters and meters of entries.

    def direct_counter(self, table: str, handle: int) -> CounterValue:
        """Packets and bytes that hit an entry."""
        return CounterValue(*self._engine.direct_counter(self._counted(table, handle), handle))

    def set_direct_counter(self, table: str, handle: int, value: CounterValue) -> None:
        """Write an entry's counter."""
        self._engine.set_direct_counter(self._counted(table, handle), handle, value.packets, value.bytes)

    def carry_direct_counters(self, to: Tables, table: str, paired: Mapping[int, int]) -> None:
        """Copy entries' counters into another pipeline's, by handle; entries that have gone are left out."""
        ours, theirs = self._program.table(table).index, to._program.table(table).index
        self._engine.carry_direct_counters(ours, to._engine, theirs, list(paired), list(paired.values()))

    def _counted(self, table: str, handle: int) -> int:
        info = self._program.table(table)
        if not info.direct_counter:
            raise ValueError(f"table {table!r} has no direct counter")
        self.entry(table, handle)
        return info.index

    def direct_meter(self, table: str, handle: int) -> MeterConfig | None:
        """The configuration of an entry's meter; None: always green."""
        self._metered(table)
        self.entry(table, handle)
        with self._lock:
            return self._meters.get((table, handle))

    def set_direct_meter(self, table: str, handle: int, config: MeterConfig | None) -> None:
        """Configure the meter of an entry; None: back to always green."""
        meter = self._metered(table)
        with self._lock:
            self.entry(table, handle)
            self._engine.set_direct_meter(self._program.table(table).index, handle, rates(meter, config))
            if config is None:
                self._meters.pop((table, handle), None)
            else:
                self._meters[table, handle] = config

    def _metered(self, table: str) -> MeterInfo:
        meter = self._program.table(table).direct_meter
        if meter is None:
            raise ValueError(f"table {table!r} has no direct meter")
        return self._program.meters[meter]

    # Default actions.

    def set_default(
        self,
        table: str,
        action: str | None,
        params: Params = (),
        *,
        member: int | None = None,
        group: int | None = None,
    ) -> None:
        """Set the action of a miss; without arguments the program's default."""
        info = self._program.table(table)
        if action is None and member is None and group is None:
            with self._lock:
                self._reset_default(info)
            return
        self._check_default(info, action)
        target = Target(member=member, group=group)
        if action is not None:
            target = Target(action, arguments(info.action(action)[1], params), member, group)
        with self._lock:
            call = self._profiles.call_of(info, target)
            self._engine.set_default(info.index, call.number, call.parameters)
            self._profiles.release(info, None, self._defaults[table])
            self._profiles.use(info, None, target, call)
            self._defaults[table] = target

    @staticmethod
    def _check_default(table: TableInfo, action: str | None) -> None:
        default = table.default
        if default is None:
            return
        if default.const:
            raise ImmutableTable(f"the default action of table {table.name!r} is constant")
        if default.const_action and action != default.action:
            raise ImmutableTable(
                f"the default action of table {table.name!r} is {default.action!r} and cannot change"
            )

    def default(self, table: str) -> tuple[str, tuple[int, ...]] | None:
        """The action of a miss and its parameters; None if that is nothing, a member or a group."""
        self._program.table(table)
        with self._lock:
            target = self._defaults[table]
        return None if target is None or target.action is None else (target.action, target.params)

    def _reset_default(self, table: TableInfo) -> None:
        self._profiles.release(table, None, self._defaults[table.name])
        self._defaults[table.name] = None
        if table.default is None:
            self._engine.set_default(table.index, NONE, [])
            return
        target = Target(table.default.action, table.default.parameters)
        call = self._profiles.call_of(table, target)
        self._engine.set_default(table.index, call.number, call.parameters)
        self._defaults[table.name] = target


def _target(
    info: TableInfo,
    action: str | None,
    params: Params,
    member: int | None,
    group: int | None,
    action_set: Sequence[WeightedAction] | None,
) -> Target:
    """What an entry does; ValueError unless exactly one thing is named, and the table can do it."""
    named = [what for what in (action, member, group, action_set) if what is not None]
    if len(named) != 1:
        raise ValueError("an entry names one of: an action, a member, a group, a set of actions")
    if action is None:
        return Target(
            member=member, group=group, action_set=None if action_set is None else tuple(action_set)
        )
    if info.profile is not None:
        raise ValueError(f"entries of table {info.name!r} refer to action profile {info.profile!r}")
    return Target(action, arguments(info.action(action)[1], params))


def _check_timeout(table: TableInfo, timeout_ns: int) -> None:
    if timeout_ns < 0:
        raise ValueError(f"an idle time-out is not negative: {timeout_ns} ns")
    if timeout_ns and not table.idle_timeouts:
        raise ValueError(f"table {table.name!r} has no idle time-outs (support_timeout)")


def _microseconds(nanoseconds: int) -> int:
    return -(-nanoseconds // 1000)
