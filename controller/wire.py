# SPDX-License-Identifier: Apache-2.0
"""Convert between the controller's values and finsy's P4Runtime entities."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import finsy as fy
from finsy.p4entity import P4Entity, P4Replica

from railweave.controller.state import Entry, Multicast, SwitchState, Update, fields


def encode(update: Update) -> fy.P4TableEntry | fy.P4MulticastGroupEntry:
    """Return an update as the entity that finsy writes."""
    entity = _entity(update.value)
    match update.kind:
        case "INSERT":
            return +entity
        case "MODIFY":
            return ~entity
        case _:
            return -entity


def _entity(value: Entry | Multicast) -> fy.P4TableEntry | fy.P4MulticastGroupEntry:
    if isinstance(value, Multicast):
        return fy.P4MulticastGroupEntry(value.group, replicas=sorted(value.replicas))
    return fy.P4TableEntry(
        value.table,
        match=fy.P4TableMatch(value.match),
        action=fy.P4TableAction(value.action, **dict(value.params)),
        priority=value.priority,
    )


def decode_entry(entity: fy.P4TableEntry) -> Entry:
    """Convert a table entry. Values with a display format (addresses) become integers again."""
    action = entity.action
    if not isinstance(action, fy.P4TableAction):
        raise ValueError(f"entry of table {entity.table_id!r} without a plain action: {entity!r}")
    match = {name: _match(value) for name, value in (entity.match or {}).items()}
    params = {name: int(value) for name, value in action.args.items()}
    return Entry(entity.table_id, fields(match), action.name, fields(params), entity.priority)


def _match(value: Any) -> Any:
    return tuple(map(int, value)) if isinstance(value, tuple) else int(value)


def decode_multicast(entity: fy.P4MulticastGroupEntry) -> Multicast:
    """Convert a multicast group."""
    replicas = (_replica(replica) for replica in entity.replicas)
    return Multicast(entity.multicast_group_id, frozenset(replicas))


def _replica(replica: P4Replica | int | tuple[int, int]) -> tuple[int, int]:
    if isinstance(replica, P4Replica):
        return replica.port, replica.instance
    return (replica, 0) if isinstance(replica, int) else replica


def decode(entities: Iterable[P4Entity], constant: frozenset[str]) -> SwitchState:
    """Convert all entities, without default actions and the entries of the program's `constant` tables."""
    entries, multicasts = set(), set()
    for entity in entities:
        if isinstance(entity, fy.P4MulticastGroupEntry):
            multicasts.add(decode_multicast(entity))
        elif isinstance(entity, fy.P4TableEntry) and _ours(entity, constant):
            entries.add(decode_entry(entity))
    return SwitchState(frozenset(entries), frozenset(multicasts))


def _ours(entity: fy.P4TableEntry, constant: frozenset[str]) -> bool:
    return not (entity.is_default_action or entity.is_const or entity.table_id in constant)
