# SPDX-License-Identifier: Apache-2.0
"""A switch's state as plain values, and the difference between two states."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Fields = tuple[tuple[str, Any], ...]
"""Named unsigned integers. A match that is not exact is a pair: value and prefix length (lpm), value and mask
(ternary), or least and greatest value (range)."""


def fields(values: Mapping[str, Any]) -> Fields:
    """Return named values as a value that does not depend on their order."""
    return tuple(sorted(values.items()))


@dataclass(frozen=True)
class Entry:
    """A table entry. The greatest priority wins; it is 0 in tables with exact and lpm matches only."""

    table: str
    match: Fields
    action: str
    params: Fields
    priority: int = 0

    @property
    def key(self) -> tuple[str, Fields]:
        """The identity of an entry: table, match and priority."""
        return self.table, (*self.match, ("priority", self.priority)) if self.priority else self.match


@dataclass(frozen=True)
class Multicast:
    """A multicast group: pairs of port and instance (the packet's egress_rid), without repetition."""

    group: int
    replicas: frozenset[tuple[int, int]]


@dataclass(frozen=True)
class SwitchState:
    """The actual or desired state of a switch, without default actions, which belong to the program."""

    entries: frozenset[Entry] = field(default_factory=frozenset)
    multicasts: frozenset[Multicast] = field(default_factory=frozenset)


@dataclass(frozen=True)
class Update:
    """One change: INSERT, MODIFY or DELETE this value."""

    kind: str
    value: Entry | Multicast


# Packets flow between two writes, so no entry may refer to a missing one. `members` and `connections` let
# packets in, so they are written last and deleted first. Multicast groups are written first.
WRITE_ORDER = ("multicast", "mac_table", "virtual_addresses", "replicas", "uplinks", "deliveries", "members")


def difference(actual: SwitchState, desired: SwitchState) -> list[Update]:
    """Return the updates, in a safe order, that turn `actual` into `desired`.

    The writer may be killed between two updates. So notes are written before the entries that they describe
    are removed, and deleted last. INSERT comes before MODIFY, which may narrow a note.
    """
    have, want = _by_key(_without(actual, desired)), _by_key(_without(desired, actual))
    gone = [value for key, value in have.items() if key not in want]
    new = [value for key, value in want.items() if key not in have]
    changed = [value for key, value in want.items() if key in have]
    deletes = [Update("DELETE", value) for value in sorted(gone, key=_order, reverse=True)]
    writes = [Update("INSERT", value) for value in sorted(new, key=_order)]
    writes += [Update("MODIFY", value) for value in sorted(changed, key=_order)]
    return [
        *(update for update in writes if is_note(update.value)),
        *(update for update in deletes if not is_note(update.value)),
        *(update for update in writes if not is_note(update.value)),
        *(update for update in deletes if is_note(update.value)),
    ]


def is_note(value: Entry | Multicast) -> bool:
    """Return whether this is a note of the controller to itself, from `tables.*_serials`."""
    if not isinstance(value, Entry):
        return False
    absent = {"members": ("group", 0), "connections": ("ingress_port", 0)}.get(value.table)
    return absent in value.match


def _without(state: SwitchState, other: SwitchState) -> SwitchState:
    return SwitchState(state.entries - other.entries, state.multicasts - other.multicasts)


def _by_key(state: SwitchState) -> dict[tuple[str, Fields], Entry | Multicast]:
    values: list[Entry | Multicast] = [*state.entries, *state.multicasts]
    return {_key(value): value for value in values}


def _key(value: Entry | Multicast) -> tuple[str, Fields]:
    return value.key if isinstance(value, Entry) else ("multicast", fields({"group": value.group}))


def _order(value: Entry | Multicast) -> tuple[int, tuple[str, Fields]]:
    table = _key(value)[0]
    rank = WRITE_ORDER.index(table) if table in WRITE_ORDER else len(WRITE_ORDER) - 1
    return rank, _key(value)
