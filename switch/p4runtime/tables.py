# SPDX-License-Identifier: Apache-2.0
"""Table entries (specification, section 9.1), with the direct resources that come along with them."""

from __future__ import annotations

import contextlib
import copy
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from finsy.proto import p4i, p4r

from railweave.switch.p4runtime import actions, matches
from railweave.switch.p4runtime.direct import Direct
from railweave.switch.p4runtime.errors import denied, not_found, require
from railweave.switch.p4runtime.profiles import Profiles
from railweave.switch.p4runtime.schema import Kind, Schema
from railweave.switch.pipeline import Entry, Match, Pipeline

_Update = p4r.Update


def monotonic_us() -> int:
    """The clock of the ports' thread, in microseconds."""
    return time.monotonic_ns() // 1000


@dataclass(frozen=True)
class _Kept:
    """What a switch does not understand, but gives back as it was written."""

    metadata: bytes = b""
    controller_metadata: int = 0
    action_set: p4r.TableAction | None = None  # with the weights and watched ports as they were written


class Tables:
    """All tables of a pipeline. Entries live there; kept here is only what is opaque to a switch."""

    def __init__(
        self, schema: Schema, pipeline: Pipeline, profiles: Profiles, clock_us: Callable[[], int]
    ) -> None:
        """Serve the tables, with the entries that the program itself brought."""
        self._schema = schema
        self._pipeline = pipeline
        self._profiles = profiles
        self._clock_us = clock_us
        self._kept: dict[tuple[int, int | None], _Kept] = {}  # by table id and handle
        self.direct = Direct(schema, pipeline)

    def snapshot(self, pipeline: Pipeline) -> Tables:
        """The tables as they are now, to be read only; `pipeline` is a snapshot, too."""
        view = copy.copy(self)
        view._pipeline, view._kept = pipeline, dict(self._kept)
        view.direct = Direct(self._schema, pipeline)
        return view

    def write(self, kind: Kind, message: p4r.TableEntry) -> None:
        """INSERT, MODIFY or DELETE an entry, or MODIFY a default action."""
        table = self._schema.tables[message.table_id]
        name = table.preamble.name
        require(not message.HasField("time_since_last_hit"), "time_since_last_hit is for reading")
        if message.is_default_action:
            self._write_default(kind, table, message)
            return
        match = self.key(table, message)
        if table.is_const_table:
            self._write_constant(kind, table, match, message)
            return
        if kind == _Update.DELETE:
            self._delete(table, self.find(table, match, message.priority))
            return
        target = actions.decode_target(self._schema, table, message.action)
        if target.action_set is not None:
            self._profiles.require_one_shot(table.implementation_id)
        self.direct.check(table, message)
        self._check_timeout(table, message)
        entries, call = self._pipeline.tables, (target.action, target.params)
        given: dict[str, Any] = {
            "member": target.member,
            "group": target.group,
            "action_set": target.action_set,
            "idle_timeout_ns": message.idle_timeout_ns,
            "now_us": self._clock_us(),
        }
        if kind == _Update.INSERT:
            handle = entries.insert(name, match, *call, message.priority, **given)
        else:
            handle = self.find(table, match, message.priority)
            entries.modify(name, handle, *call, **given)
        self._keep(table, handle, message)
        self._count_one_shot(table, handle, present=target.action_set is not None)
        self.direct.apply(table, handle, message)

    def read(self, pattern: p4r.TableEntry) -> Iterator[p4r.Entity | None]:
        """Entries, or default entries, that fit a pattern; what it leaves unset is a wildcard.

        None for an entry that does not fit.
        """
        if pattern.table_id:
            table = self._schema.tables[pattern.table_id]
            if pattern.HasField("time_since_last_hit"):
                self._check_timeout(table, pattern)
            self.direct.check_read(table, pattern)
        for table in self._schema.tables.chosen(pattern.table_id):
            for found in self.select(table, pattern):
                if found is None:
                    yield None
                    continue
                message, handle = found
                if handle is not None:
                    self._fill(table, handle, pattern, message)
                yield p4r.Entity(table_entry=message)

    def current(self, message: p4r.TableEntry) -> Iterator[p4r.Entity]:
        """The entry with this very key, complete: what an update of it would replace."""
        table = self._schema.tables[message.table_id]
        if message.is_default_action:
            default = self.encode_default(table)
            if self._is_declared(table):
                default.ClearField("action")
            yield p4r.Entity(table_entry=default)
            return
        handle = self.find(table, self.key(table, message), message.priority)
        entry = self.encode(table, self._pipeline.tables.entry(table.preamble.name, handle))
        self.direct.read_all(table, handle, entry)
        if entry.is_const:
            entry.ClearField("action")
        entry.is_const = False
        yield p4r.Entity(table_entry=entry)

    def state(self) -> Iterator[p4r.Update]:
        """What makes the tables of a fresh pipeline like these."""
        for table in self._schema.tables.values():
            for entry in self._pipeline.tables.entries(table.preamble.name):
                message = self.encode(table, entry)
                self.direct.read_all(table, entry.handle, message)
                if entry.const and self.direct.is_fresh(message):
                    continue
                kind = _Update.MODIFY if entry.const else _Update.INSERT
                if entry.const:
                    message.ClearField("action")
                message.is_const = False
                yield _Update(type=kind, entity=p4r.Entity(table_entry=message))
            if not self._is_declared(table):
                default = p4r.Entity(table_entry=self.encode_default(table))
                yield _Update(type=_Update.MODIFY, entity=default)

    def expired(self, most: int) -> tuple[list[p4r.TableEntry], bool]:
        """Look at up to `most` entries. Return the keys of idle ones, and whether more are due."""
        tables = {table.preamble.name: table for table in self._schema.tables.values()}
        found = []
        expired, more = self._pipeline.tables.expired(self._clock_us(), most)
        for name, entry in expired:
            message = self.encode(tables[name], entry)
            message.ClearField("action")
            found.append(message)
        return found, more

    def key(self, table: p4i.Table, message: p4r.TableEntry) -> list[Match]:
        """The match of an entry that is named in full."""
        name = table.preamble.name
        if matches.needs_priority(table):
            require(message.priority > 0, f"an entry of {name} needs a priority greater than 0")
        else:
            require(message.priority == 0, f"an entry of {name} takes no priority")
        return matches.decode(name, table.match_fields, message.match)

    def find(self, table: p4i.Table, match: list[Match], priority: int) -> int:
        """The handle of the entry with this key; Refused if there is none."""
        handle = self._pipeline.tables.find(table.preamble.name, match, priority)
        if handle is None:
            raise not_found(f"table {table.preamble.name} has no such entry")
        return handle

    def select(
        self, table: p4i.Table, pattern: p4r.TableEntry
    ) -> Iterator[tuple[p4r.TableEntry, int | None] | None]:
        """Entries (or the default entry, if that is asked for) with their handles; None for one that is not
        meant, so that a long search can be interrupted.
        """
        if pattern.is_default_action:
            yield self.encode_default(table), None
            return
        name = table.preamble.name
        entries: Iterable[Entry] = self._pipeline.tables.entries(name)
        wanted = None
        if pattern.match:
            require(pattern.table_id, "a match needs a table")
            match = matches.decode(name, table.match_fields, pattern.match)
            wanted = self._pipeline.tables.key(name, match)
            if pattern.priority or not matches.needs_priority(table):
                handle = self._pipeline.tables.find(name, match, pattern.priority)
                entries = [] if handle is None else [self._pipeline.tables.entry(name, handle)]
        for entry in entries:
            if pattern.priority in (0, entry.priority) and wanted in (None, entry.matches):
                message = self.encode(table, entry)
                yield (message, entry.handle) if _fits(message, pattern) else None
            else:
                yield None

    def encode(self, table: p4i.Table, entry: Entry) -> p4r.TableEntry:
        """An entry as it was written, without its direct resources."""
        kept = self._kept.get((table.preamble.id, entry.handle), _Kept())
        message = p4r.TableEntry(
            table_id=table.preamble.id,
            is_const=entry.const,
            idle_timeout_ns=entry.idle_timeout_ns,
            metadata=kept.metadata,
            controller_metadata=kept.controller_metadata,
        )
        message.match.extend(matches.encode(table.match_fields, entry.matches))
        if kept.action_set is not None:
            message.action.CopyFrom(kept.action_set)
        else:
            message.action.CopyFrom(actions.encode_target(self._schema, table, entry.target))
        if matches.needs_priority(table):
            message.priority = entry.priority
        return message

    def encode_default(self, table: p4i.Table) -> p4r.TableEntry:
        """The default entry."""
        kept = self._kept.get((table.preamble.id, None), _Kept())
        message = p4r.TableEntry(
            table_id=table.preamble.id,
            is_default_action=True,
            metadata=kept.metadata,
            controller_metadata=kept.controller_metadata,
        )
        default = self._pipeline.tables.default(table.preamble.name)
        if default is not None:
            message.action.action.CopyFrom(actions.encode(self._schema, table, *default))
        return message

    def _write_default(self, kind: Kind, table: p4i.Table, message: p4r.TableEntry) -> None:
        name = table.preamble.name
        require(kind == _Update.MODIFY, f"the default action of {name} can only be modified")
        require(
            not message.match and not message.priority and not message.idle_timeout_ns,
            "a default entry has neither match nor priority nor idle time-out",
        )
        self.direct.refuse_default(message)
        if table.const_default_action_id or table.implementation_id:
            raise denied(f"the default action of {name} is constant", "leave it")
        if message.HasField("action"):
            require(
                message.action.WhichOneof("type") == "action", f"a default entry of {name} takes an action"
            )
            action, params = actions.decode(self._schema, table, message.action.action, default=True)
            self._pipeline.tables.set_default(name, action, params)
            self._keep(table, None, message)
        else:
            self._pipeline.tables.set_default(name, None)
            self._kept.pop((table.preamble.id, None), None)

    def _write_constant(
        self, kind: Kind, table: p4i.Table, match: list[Match], message: p4r.TableEntry
    ) -> None:
        """Of a constant entry only the direct resources can be written."""
        name = table.preamble.name
        if kind != _Update.MODIFY or message.HasField("action") or message.idle_timeout_ns:
            raise denied(f"the entries of table {name} are constant", "modify only their counters and meters")
        self.direct.check(table, message)
        self.direct.apply(table, self.find(table, match, message.priority), message)

    def _delete(self, table: p4i.Table, handle: int) -> None:
        self._pipeline.tables.delete(table.preamble.name, handle)
        self._kept.pop((table.preamble.id, handle), None)
        self._count_one_shot(table, handle, present=False)

    def _keep(self, table: p4i.Table, handle: int | None, message: p4r.TableEntry) -> None:
        one_shot = message.action.WhichOneof("type") == "action_profile_action_set"
        action_set = copy.deepcopy(message.action) if one_shot else None
        kept = _Kept(message.metadata, message.controller_metadata, action_set)
        self._kept[table.preamble.id, handle] = kept

    def _count_one_shot(self, table: p4i.Table, handle: int, *, present: bool) -> None:
        if table.implementation_id:
            self._profiles.count_one_shot(table.implementation_id, table.preamble.id, handle, present=present)

    def _check_timeout(self, table: p4i.Table, message: p4r.TableEntry) -> None:
        name = table.preamble.name
        require(message.idle_timeout_ns >= 0, "idle_timeout_ns is 0 (never) or more")
        wanted = message.idle_timeout_ns or message.HasField("time_since_last_hit")
        supported = table.idle_timeout_behavior == p4i.Table.NOTIFY_CONTROL
        require(supported or not wanted, f"table {name} supports no idle time-outs")

    def _fill(self, table: p4i.Table, handle: int, pattern: p4r.TableEntry, message: p4r.TableEntry) -> None:
        """Add what the pattern asks for."""
        self.direct.read(table, handle, pattern, message)
        if (
            pattern.HasField("time_since_last_hit")
            and table.idle_timeout_behavior == p4i.Table.NOTIFY_CONTROL
        ):
            with contextlib.suppress(IndexError):  # the entry has gone since a snapshot
                elapsed = self._pipeline.tables.time_since_last_hit_ns(
                    table.preamble.name, handle, self._clock_us()
                )
                message.time_since_last_hit.elapsed_ns = elapsed

    def _is_declared(self, table: p4i.Table) -> bool:
        """Whether the default action is the one that the program declares."""
        declared = self._pipeline.program.tables[table.preamble.name].default
        current = self._pipeline.tables.default(table.preamble.name)
        kept = self._kept.get((table.preamble.id, None), _Kept())
        if kept != _Kept():
            return False
        return current == (None if declared is None else (declared.action, declared.parameters))


def _fits(message: p4r.TableEntry, pattern: p4r.TableEntry) -> bool:
    """Whether an entry has the action and the metadata that a pattern names."""
    wanted = pattern.action.action.action_id
    return (
        wanted in (0, message.action.action.action_id)
        and pattern.controller_metadata in (0, message.controller_metadata)
        and pattern.metadata in (b"", message.metadata)
    )
