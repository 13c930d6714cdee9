# SPDX-License-Identifier: Apache-2.0
"""Tables with their entries, by name."""

from __future__ import annotations

from typing import Any

from finsy.proto import p4i, p4r

from railweave.switch.inspect import names
from railweave.switch.inspect.cells import rates
from railweave.switch.inspect.client import SwitchClient

Row = dict[str, Any]


def tables(client: SwitchClient, wanted: str | None, *, counted: bool = False) -> list[Row]:
    """Return all tables, or one: size, entries in order of priority, default action.

    With `counted`, return only tables with direct counters.
    """
    p4info = client.p4info()
    chosen = [names.find("table", p4info.tables, wanted)] if wanted else p4info.tables
    readers = [_Reader(client, p4info, table) for table in chosen]
    return [reader.table() for reader in readers if reader.counted or not counted]


class _Reader:
    """Reads one table."""

    def __init__(self, client: SwitchClient, p4info: p4i.P4Info, table: p4i.Table) -> None:
        self._client = client
        self._table = table
        self._actions = {action.preamble.id: action for action in p4info.actions}
        direct = set(table.direct_resource_ids)
        self.counted = any(counter.preamble.id in direct for counter in p4info.direct_counters)
        self._metered = any(meter.preamble.id in direct for meter in p4info.direct_meters)

    def table(self) -> Row:
        table = self._table
        entries = [self._entry(entity.table_entry) for entity in self._read(p4r.TableEntry())]
        entries.sort(key=lambda row: -row.get("priority", 0))
        defaults = self._read(p4r.TableEntry(is_default_action=True), direct=False)
        default = (self._action(defaults[-1].table_entry.action) or None) if defaults else None
        return {"name": names.of(table), "size": table.size, "entries": entries, "default": default}

    def _read(self, pattern: p4r.TableEntry, *, direct: bool = True) -> list[p4r.Entity]:
        pattern.table_id = self._table.preamble.id
        if direct and self.counted:
            pattern.counter_data.SetInParent()
        if direct and self._metered:
            pattern.meter_config.SetInParent()
        if direct and self._table.idle_timeout_behavior == p4i.Table.NOTIFY_CONTROL:
            pattern.time_since_last_hit.SetInParent()
        return list(self._client.read([p4r.Entity(table_entry=pattern)]))

    def _entry(self, entry: p4r.TableEntry) -> Row:
        fields = {field.id: field for field in self._table.match_fields}
        given = ((fields[match.field_id], match) for match in entry.match)
        matches = {field.name: _match(match, field.bitwidth) for field, match in given}
        text = {field.name: _match_text(field, matches.get(field.name)) for field in fields.values()}
        row: Row = {"match": matches, "text": text}
        if entry.priority:
            row["priority"] = entry.priority
        row |= self._action(entry.action)
        if entry.HasField("counter_data"):
            row["packets"], row["bytes"] = entry.counter_data.packet_count, entry.counter_data.byte_count
        if entry.HasField("meter_config"):
            row["meter"] = rates(entry.meter_config)
        if entry.HasField("time_since_last_hit"):
            row["idle_s"] = entry.time_since_last_hit.elapsed_ns / 1e9
        if entry.idle_timeout_ns:
            row["idle_timeout_s"] = entry.idle_timeout_ns / 1e9
        if entry.is_const or self._table.is_const_table:
            row["constant"] = True
        return row

    def _action(self, action: p4r.TableAction) -> Row:
        match action.WhichOneof("type"):
            case "action":
                return call(self._actions, action.action)
            case "action_profile_member_id":
                return {"member": action.action_profile_member_id}
            case "action_profile_group_id":
                return {"group": action.action_profile_group_id}
            case "action_profile_action_set":
                actions = action.action_profile_action_set.action_profile_actions
                calls = [call(self._actions, one.action) | {"weight": one.weight} for one in actions]
                return {"action_set": calls}
        return {}


def call(actions: dict[int, p4i.Action], action: p4r.Action) -> Row:
    """Return an action with its parameters, by name."""
    info = actions.get(action.action_id)
    if info is None:
        return {"action": f"#{action.action_id}", "params": {}}
    params = {param.id: param for param in info.params}
    given = {
        params[p.param_id].name: names.value(p.value, params[p.param_id].bitwidth) for p in action.params
    }
    text = ", ".join(
        f"{param.name}={names.number(given.get(param.name, 0), param.bitwidth, param.name)}"
        for param in info.params
    )
    return {"action": names.of(info), "params": given, "call": f"{names.of(info)}({text})"}


def action_counts(client: SwitchClient) -> list[Row]:
    """Return packets and bytes per table and action, summed over the direct counters of entries."""
    sums: dict[tuple[str, str], Row] = {}
    for table in tables(client, None, counted=True):
        for entry in table["entries"]:
            name, action = table["name"], entry.get("action") or "by action profile"
            zeros = {"entries": 0, "packets": 0, "bytes": 0}
            row = sums.setdefault((name, action), {"table": name, "action": action, **zeros})
            row["entries"] += 1
            row["packets"] += entry.get("packets", 0)
            row["bytes"] += entry.get("bytes", 0)
    return list(sums.values())


def _match(match: p4r.FieldMatch, bitwidth: int) -> Row:
    """Return a match as values."""
    kind = match.WhichOneof("field_match_type") or "exact"
    given = getattr(match, kind)
    parts = {field.name: getattr(given, field.name) for field in given.DESCRIPTOR.fields}
    prefix = {"prefix": parts.pop("prefix_len")} if kind == "lpm" else {}
    return {"kind": kind} | {name: names.value(part, bitwidth) for name, part in parts.items()} | prefix


def _match_text(field: p4i.MatchField, match: Row | None) -> str:
    """Return a match as text."""
    if match is None:
        return "*"

    def text(value: int | str) -> str:
        return names.number(value, field.bitwidth, field.name)

    match match["kind"]:
        case "lpm":
            return f"{text(match['value'])}/{match['prefix']}"
        case "ternary":
            return f"{match['value']:#x} &&& {match['mask']:#x}"
        case "range":
            return f"{text(match['low'])}..{text(match['high'])}"
    return text(match["value"])
