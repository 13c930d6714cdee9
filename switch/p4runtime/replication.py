# SPDX-License-Identifier: Apache-2.0
"""The packet replication engine: multicast groups and clone sessions."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from typing import Any, Self

from finsy.proto import p4r

from railweave.switch.p4runtime import bytestrings
from railweave.switch.p4runtime.errors import not_found, require, require_fits, unimplemented
from railweave.switch.p4runtime.schema import Entities, Kind, Schema
from railweave.switch.pipeline import Pipeline, Replica

_PORT_BITS = 9  # of v1model's egress_spec
_KINDS = {  # by field of PacketReplicationEngineEntry: a name, and the field with the number
    "multicast_group_entry": ("multicast group", "multicast_group_id"),
    "clone_session_entry": ("clone session", "session_id"),
}


class Replication(Entities):
    """All groups and sessions of a pipeline, as controllers wrote them."""

    def __init__(self, schema: Schema, pipeline: Pipeline) -> None:
        """Begin without groups and sessions, as the pipeline does."""
        super().__init__(schema, pipeline)
        self._known: dict[str, dict[int, Any]] = {kind: {} for kind in _KINDS}  # messages by number

    def snapshot(self, pipeline: Pipeline) -> Self:
        """Return groups and sessions as they are now, to be read only."""
        view = super().snapshot(pipeline)
        view._known = {kind: dict(known) for kind, known in self._known.items()}
        return view

    def write(self, kind: Kind, message: p4r.PacketReplicationEngineEntry) -> None:
        """INSERT, MODIFY (replaces all replicas) or DELETE a group or session."""
        field = str(message.WhichOneof("type"))
        require(field in _KINDS, "a multicast group or clone session is expected, not nothing")
        what, key = _KINDS[field]
        entry, known = copy.deepcopy(getattr(message, field)), self._known[field]
        number = getattr(entry, key)
        require(number > 0, f"a {what} has a number greater than 0")
        require_fits(kind, f"{what} {number}", exists=number in known)
        if kind == p4r.Update.DELETE:
            self._set(entry.__class__(**{key: number}))
            del known[number]
        else:
            self._set(entry)
            known[number] = entry

    def read(self, pattern: p4r.PacketReplicationEngineEntry) -> Iterator[p4r.Entity]:
        """Yield one group or session, or all of a kind (number 0), or everything."""
        wanted = pattern.WhichOneof("type")
        for field in [wanted] if wanted else _KINDS:
            what, key = _KINDS[field]
            known, number = self._known[field], getattr(getattr(pattern, field), key)
            require(number in known or not number, f"there is no {what} {number}", not_found)
            for entry in [known[number]] if number else known.values():
                yield p4r.Entity(
                    packet_replication_engine_entry=p4r.PacketReplicationEngineEntry(**{field: entry})
                )

    def _set(self, entry: p4r.MulticastGroupEntry | p4r.CloneSessionEntry) -> None:
        """Let packets be copied as an entry says: no longer, if it has no replicas."""
        replicas = _replicas(entry.replicas)
        if isinstance(entry, p4r.MulticastGroupEntry):
            self._pipeline.replication.set_group(entry.multicast_group_id, replicas)
        else:
            require(
                not entry.class_of_service, "a class of service is not supported, as on BMv2", unimplemented
            )
            self._pipeline.replication.set_session(entry.session_id, replicas, entry.packet_length_bytes)


def _replicas(messages: Iterable[p4r.Replica]) -> list[Replica]:
    replicas = [Replica(_port(message), message.instance) for message in messages]
    require(len(set(replicas)) == len(replicas), "the (port, instance) pairs of a group must differ")
    return replicas


def _port(message: p4r.Replica) -> int:
    """Return a replica's port, and make its bytestring canonical."""
    require(not message.backup_replicas, "backup replicas are not supported", unimplemented)
    kind = message.WhichOneof("port_kind")
    require(kind, "a replica needs a port")
    if kind == "egress_port":
        port = message.egress_port
        require(port < 1 << _PORT_BITS, f"a replica's port has {_PORT_BITS} bits, {port} has more")
        return port
    port = bytestrings.decode(message.port, _PORT_BITS, "a replica's port")
    message.port = bytestrings.encode(port)
    return port
