# SPDX-License-Identifier: Apache-2.0
"""The rights of roles: role configurations in the scheme of Stratum (`stratum.P4RoleConfig`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from finsy.proto import p4r, stratum
from google.protobuf.any_pb2 import Any
from google.protobuf.message import DecodeError

from railweave.switch.p4runtime.errors import denied, require

OPERATOR = "operator"  # the role of a client that impairs links and traces packets beside a controller
_MAX_IDS = 65_536


@dataclass(frozen=True)
class Scope:
    """A role's rights. A role without a configuration has all rights."""

    exclusive: frozenset[int] = frozenset()  # P4 ids that only this role writes
    shared: frozenset[int] = frozenset()  # P4 ids that other roles may write, too
    packet_in_filter: tuple[int, bytes] | None = None  # metadata id and the value that a packet-in must carry
    receives_packet_ins: bool = True
    can_push_pipeline: bool = True
    everything: bool = True

    @classmethod
    def of(cls, config: Any) -> Scope:
        """Unpack a role configuration; Refused if it is of another scheme."""
        message = stratum.P4RoleConfig()
        try:
            fits = config.Unpack(message)
        except DecodeError:
            fits = False
        require(
            fits, f"a role config must be a well-formed stratum.P4RoleConfig, not {config.type_url[:80]!r}"
        )
        exclusive, shared = frozenset(message.exclusive_p4_ids), frozenset(message.shared_p4_ids)
        require(len(exclusive) + len(shared) <= _MAX_IDS, f"a role config lists up to {_MAX_IDS} ids")
        require(not exclusive & shared, "a role config lists ids as exclusive and as shared")
        chosen = None
        if message.HasField("packet_in_filter"):
            chosen = (message.packet_in_filter.metadata_id, message.packet_in_filter.value.lstrip(b"\0"))
        rights = message.receives_packet_ins, message.can_push_pipeline
        return cls(exclusive, shared, chosen, *rights, everything=False)

    def covers(self, p4_id: int | None) -> bool:
        """Return whether the role may write the object; None: objects without an id, such as groups."""
        return self.everything or p4_id in self.exclusive or p4_id in self.shared

    def hears(self, packet: p4r.PacketIn) -> bool:
        """Return whether a packet-in goes to the role."""
        if not self.receives_packet_ins or self.packet_in_filter is None:
            return self.receives_packet_ins
        wanted, value = self.packet_in_filter
        return any(m.metadata_id == wanted and m.value.lstrip(b"\0") == value for m in packet.metadata)


def require_apart(name: str, scope: Scope, others: Mapping[str, Scope]) -> None:
    """Refuse a scope with an id that is exclusive to another role, or exclusive here and shared there."""
    for other, theirs in others.items():
        if other == name:
            continue
        clash = scope.exclusive & (theirs.exclusive | theirs.shared) | scope.shared & theirs.exclusive
        some = ", ".join(map(str, sorted(clash)[:5]))
        require(not clash, f"roles {name!r} and {other!r} both claim the ids {some}")


def require_covered(scope: Scope, entity: p4r.Entity) -> None:
    """Refuse an update of an object that the role may not write."""
    if not scope.covers(p4_id(entity)):
        what = entity.WhichOneof("entity")
        raise denied(
            f"the role's config does not include this {what}", "write as another role, or extend the config"
        )


_P4_IDS: dict[str, Callable[[p4r.Entity], int]] = {
    "table_entry": lambda entity: entity.table_entry.table_id,
    "direct_counter_entry": lambda entity: entity.direct_counter_entry.table_entry.table_id,
    "direct_meter_entry": lambda entity: entity.direct_meter_entry.table_entry.table_id,
    "action_profile_member": lambda entity: entity.action_profile_member.action_profile_id,
    "action_profile_group": lambda entity: entity.action_profile_group.action_profile_id,
    "counter_entry": lambda entity: entity.counter_entry.counter_id,
    "meter_entry": lambda entity: entity.meter_entry.meter_id,
    "register_entry": lambda entity: entity.register_entry.register_id,
    "value_set_entry": lambda entity: entity.value_set_entry.value_set_id,
    "digest_entry": lambda entity: entity.digest_entry.digest_id,
}


def p4_id(entity: p4r.Entity) -> int | None:
    """Return the id of the P4 object that an entity belongs to; None if it belongs to no object."""
    find = _P4_IDS.get(str(entity.WhichOneof("entity")))
    return find(entity) if find else None
