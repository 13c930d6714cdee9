# SPDX-License-Identifier: Apache-2.0
"""A table's entries and its default action."""

from __future__ import annotations

import copy
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Self

from railweave._native.engine import NONE, Engine
from railweave.switch.errors import DuplicateEntry, ImmutableTable, TableFull, UnknownEntry
from railweave.switch.pipeline.arrays import rates
from railweave.switch.pipeline.idle import IdleTimers
from railweave.switch.pipeline.matches import check, encode
from railweave.switch.pipeline.profiles import Call, Profile
from railweave.switch.pipeline.values import (
    NO_OPAQUE,
    CounterValue,
    Entry,
    MeterConfig,
    Opaque,
    Target,
    arguments,
    words,
)
from railweave.switch.program import Match, MeterInfo, TableInfo

EntryKey = tuple[tuple[Match, ...], int]  # matches and priority

_NOTHING = Target()


class Table:
    """A table, with the program's own entries in it from the start."""

    def __init__(
        self,
        info: TableInfo,
        engine: Engine,
        profile: Profile | None,
        meter: MeterInfo | None,
        timers: IdleTimers,
        lock: threading.RLock,
    ) -> None:
        """Install the program's entries and default action."""
        self.info = info
        self._what = f"table {info.name!r}"
        self._engine = engine
        self._profile = profile
        self._meter = meter
        self._timers = timers
        self._lock = lock
        self._needs_priority = info.needs_priority
        self._immutable = info.immutable
        self._entries: dict[int, Entry] = {}
        self._handles: dict[EntryKey, int] = {}
        declared = info.default
        target = _NOTHING if declared is None else Target(declared.action, declared.parameters)
        self.declared = self.default = Entry(NONE, (), 0, target)
        self._put_default(self.declared)
        for row in info.const_entries:
            priority = row.priority if self._needs_priority else 0
            self._add(
                (row.matches, priority), Target(row.action, row.parameters), 0, NO_OPAQUE, 0, const=True
            )

    def insert(
        self,
        match: Sequence[Match],
        target: Target,
        priority: int = 0,
        *,
        idle_timeout_ns: int = 0,
        opaque: Opaque = NO_OPAQUE,
        now_us: int | None = None,
    ) -> int:
        """Add an entry. Return its handle. If several entries match a packet, the greatest priority wins.

        An entry that no packet hits for `idle_timeout_ns` (0: for ever) is listed by `expired`.
        """
        self.require_mutable()
        if not self.info.key:
            raise ValueError(f"{self._what} has no key: it takes no entries, only a default action")
        key = self.key(match, priority)
        self.check_timeout(idle_timeout_ns)
        return self._add(key, self._checked(target), idle_timeout_ns, opaque, self._now(now_us))

    def _add(
        self,
        key: EntryKey,
        target: Target,
        timeout_ns: int,
        opaque: Opaque,
        now_us: int,
        *,
        const: bool = False,
    ) -> int:
        """Add a checked entry. Return its handle."""
        info = self.info
        matches, priority = key
        encoded = encode(info, matches)
        with self._lock:
            if key in self._handles:
                raise DuplicateEntry(f"{self._what} has an entry with this key already")
            if len(self._entries) >= info.size:
                raise TableFull(f"{self._what} is full: it holds {info.size} entries")
            call = self._call(target)
            rank = priority if self._needs_priority else encoded.prefix
            handle = self._engine.insert(
                info.index, encoded.value, encoded.mask, encoded.ranges, rank, call.number, call.parameters
            )
            if self._profile is not None:
                self._profile.use((info.index, handle), target, call)
            if info.idle_timeouts:
                self._engine.set_last_hit(info.index, handle, now_us)
                self._timers.set((info.name, handle), _microseconds(timeout_ns), now_us)
            self._entries[handle] = Entry(handle, matches, priority, target, const, timeout_ns, opaque=opaque)
            self._handles[key] = handle
            return handle

    def modify(
        self,
        handle: int,
        target: Target,
        *,
        idle_timeout_ns: int = 0,
        opaque: Opaque = NO_OPAQUE,
        now_us: int | None = None,
    ) -> None:
        """Change an entry, but not its counter and meter. The time-out starts again."""
        info = self.info
        self.check_timeout(idle_timeout_ns)
        target = self._checked(target)
        now_us = self._now(now_us)
        with self._lock:
            entry = self._mutable(handle)
            call = self._call(target)
            self._engine.modify(info.index, handle, call.number, call.parameters)
            if self._profile is not None:
                self._profile.release((info.index, handle), entry.target)
                self._profile.use((info.index, handle), target, call)
            if info.idle_timeouts:
                self._timers.set((info.name, handle), _microseconds(idle_timeout_ns), now_us)
            self._entries[handle] = replace(
                entry, target=target, idle_timeout_ns=idle_timeout_ns, opaque=opaque
            )

    def delete(self, handle: int) -> None:
        """Remove an entry."""
        with self._lock:
            entry = self._mutable(handle)
            self._engine.remove(self.info.index, handle)
            self._timers.set((self.info.name, handle), 0, 0)
            if self._profile is not None:
                self._profile.release((self.info.index, handle), entry.target)
            del self._entries[handle]
            del self._handles[entry.matches, entry.priority]

    def set_immutable(self, immutable: bool) -> None:
        """Keep the program's own entries, and only these, or let controllers change and add entries."""
        with self._lock:
            self._immutable = immutable
            self._entries = {
                handle: replace(entry, const=immutable) for handle, entry in self._entries.items()
            }

    def set_default(self, target: Target | None, opaque: Opaque = NO_OPAQUE) -> None:
        """Set the action of a miss; None: the one that the program declares."""
        self.require_mutable_default()
        if target is None:
            self._put_default(self.declared)
            return
        declared = self.info.default
        if declared is not None and declared.const_action and target.action != declared.action:
            raise ImmutableTable(
                f"the default action of {self._what} is {declared.action!r} and cannot change"
            )
        self._put_default(Entry(NONE, (), 0, self._checked(target), opaque=opaque))

    def _put_default(self, default: Entry) -> None:
        call = self._call(default.target)
        self._engine.set_default(self.info.index, call.number, call.parameters)
        self.default = default

    # Checks.

    def key(self, match: Sequence[Match], priority: int) -> EntryKey:
        """Return the key of an entry as the table keeps it; ValueError if none can have it."""
        if self._needs_priority and priority <= 0:
            raise ValueError(f"an entry of {self._what} needs a priority of at least 1, not {priority}")
        if not self._needs_priority and priority != 0:
            raise ValueError(f"an entry of {self._what} has no priority, but {priority} was given")
        return check(self.info, match), priority

    def require_mutable(self) -> None:
        """Raise ImmutableTable if the program itself makes all entries."""
        if self._immutable:
            raise ImmutableTable(f"{self._what} has constant entries only")

    def require_mutable_default(self) -> None:
        """Raise ImmutableTable if the default action is constant, as that of an action profile's table."""
        declared = self.info.default
        if self.info.profile is not None or (declared is not None and declared.const):
            raise ImmutableTable(f"the default action of {self._what} is constant")

    def check_timeout(self, timeout_ns: int) -> None:
        """Raise ValueError unless entries can have this idle time-out."""
        if timeout_ns < 0:
            raise ValueError(f"an idle time-out is not negative: {timeout_ns} ns")
        if timeout_ns and not self.info.idle_timeouts:
            raise ValueError(f"{self._what} has no idle time-outs (support_timeout)")

    def _checked(self, target: Target) -> Target:
        """Return the target with parameters as numbers; ValueError if no entry can have it."""
        kinds = target.action, target.member, target.group, target.action_set
        if sum(kind is not None for kind in kinds) != 1:
            raise ValueError("an entry names one of: an action, a member, a group, a set of actions")
        if self._profile is not None:
            return self._profile.checked(target)
        if target.action is None:
            raise ValueError(f"{self._what} has no action profile: its entries take an action")
        return Target(target.action, arguments(self.info.action(target.action)[1], target.params))

    def _call(self, target: Target) -> Call:
        """Return a checked target in the engine's format."""
        if target.action is not None:
            number, action = self.info.action(target.action)
            return Call(number, words(action, target.params))
        if self._profile is None or target == _NOTHING:
            return Call(NONE, [])
        return self._profile.call(self.info, target)

    def _mutable(self, handle: int) -> Entry:
        entry = self.entry(handle)
        if entry.const:
            raise ImmutableTable(f"entry {handle} of {self._what} is constant")
        return entry

    # Reading.

    def entry(self, handle: int) -> Entry:
        """Return the entry with this handle; UnknownEntry if the table has no such entry."""
        with self._lock:
            found = self._entries.get(handle)
        if found is None:
            raise UnknownEntry(f"{self._what} has no entry {handle}")
        return found

    def find(self, matches: tuple[Match, ...], priority: int) -> Entry | None:
        """Return the entry with this key, as the table keeps it, if there is one."""
        with self._lock:
            handle = self._handles.get((matches, priority))
            return None if handle is None else self._entries[handle]

    def entries(self) -> list[Entry]:
        """Return all entries, constant ones included, in the order in which they were added."""
        with self._lock:
            return list(self._entries.values())

    def snapshot(self) -> Self:
        """Return entries and default action as they are now, to be read only."""
        view = copy.copy(self)
        view._entries, view._handles = dict(self._entries), dict(self._handles)
        return view

    def _now(self, now_us: int | None) -> int:
        """Return `now_us`, or the time of the last packet."""
        return self._engine.now_us() if now_us is None else now_us

    # Idle time-outs.

    def time_since_last_hit_ns(self, handle: int, now_us: int | None = None) -> int:
        """Return the time since a packet hit the entry, or since the entry was made."""
        if not self.info.idle_timeouts:
            raise ValueError(f"{self._what} has no idle time-outs")
        return max(0, self._now(now_us) - self.last_hit_us(handle)) * 1000

    def last_hit_us(self, handle: int) -> int:
        """Return the time at which a packet last hit the entry, or at which the entry was made."""
        return self._engine.last_hit_us(self.info.index, handle)

    # Counters and meters of entries.

    def direct_counter(self, handle: int) -> CounterValue:
        """Return the packets and bytes that hit an entry."""
        self.require_counter()
        return CounterValue(*self._engine.direct_counter(self.info.index, handle))

    def set_direct_counter(self, handle: int, value: CounterValue) -> None:
        """Write an entry's counter."""
        self.require_counter()
        self._engine.set_direct_counter(self.info.index, handle, value.packets, value.bytes)

    def require_counter(self) -> None:
        """Raise ValueError unless entries count packets."""
        if not self.info.direct_counter:
            raise ValueError(f"{self._what} has no direct counter")

    def set_direct_meter(self, handle: int, config: MeterConfig | None) -> None:
        """Configure the meter of an entry; None: back to always green."""
        if self._meter is None:
            raise ValueError(f"{self._what} has no direct meter")
        with self._lock:
            entry = self.entry(handle)
            if config is not None or entry.meter is not None:
                self._engine.set_direct_meter(self.info.index, handle, rates(self._meter, config))
                self._entries[handle] = replace(entry, meter=config)


def _microseconds(nanoseconds: int) -> int:
    return -(-nanoseconds // 1000)
