# SPDX-License-Identifier: Apache-2.0
"""The packet replication engine: multicast groups and clone sessions."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from typing import TypeAlias, TypeVar

from finsy.proto import p4r

from railweave.switch.p4runtime import bytestrings
from railweave.switch.p4runtime.errors import invalid, not_found, require, require_fits, unimplemented
from railweave.switch.pipeline import Pipeline, Replica

_PORT_BITS = 9  # of v1model's egress_spec
_INSTANCE_BITS = 16  # of its egress_rid
_MAX_GROUP = (1 << 16) - 1  # its mcast_grp has 16 bits
_MAX_LENGTH = (1 << 16) - 1
_MAX_SESSION = (1 << 15) - 1  # BMv2 keeps the upper half of 16 bits for itself

_Entry = p4r.PacketReplicationEngineEntry
_Kind: TypeAlias = "p4r.Update.Type.ValueType"
_T = TypeVar("_T", p4r.MulticastGroupEntry, p4r.CloneSessionEntry)


class Replication:
    """All groups and sessions of a pipeline, as controllers wrote them."""

    def __init__(self, pipeline: Pipeline) -> None:
        """There are none at first."""
        self._pipeline = pipeline
        self._groups: dict[int, p4r.MulticastGroupEntry] = {}
        self._sessions: dict[int, p4r.CloneSessionEntry] = {}

    def snapshot(self) -> Replication:
        """Groups and sessions as they are now, to be read only."""
        view = copy.copy(self)
        view._groups, view._sessions = dict(self._groups), dict(self._sessions)
        return view

    def write(self, kind: _Kind, message: p4r.PacketReplicationEngineEntry) -> None:
        """INSERT, MODIFY (replaces all replicas) or DELETE a group or session."""
        match message.WhichOneof("type"):
            case "multicast_group_entry":
                group = message.multicast_group_entry
                self._write(
                    kind, "multicast group", self._groups, _MAX_GROUP, group.multicast_group_id, group
                )
            case "clone_session_entry":
                session = message.clone_session_entry
                self._write(kind, "clone session", self._sessions, _MAX_SESSION, session.session_id, session)
            case other:
                raise invalid(f"a multicast group or clone session is expected, not {other}")

    def read(self, pattern: p4r.PacketReplicationEngineEntry) -> Iterator[p4r.Entity]:
        """One group or session, or all of a kind (id 0), or everything."""
        kind = pattern.WhichOneof("type")
        if kind in ("multicast_group_entry", None):
            number = pattern.multicast_group_entry.multicast_group_id
            for group in _wanted("multicast group", self._groups, number):
                yield _entity(_Entry(multicast_group_entry=group))
        if kind in ("clone_session_entry", None):
            for session in _wanted("clone session", self._sessions, pattern.clone_session_entry.session_id):
                yield _entity(_Entry(clone_session_entry=session))

    def _write(
        self, kind: _Kind, what: str, known: dict[int, _T], most: int, number: int, message: _T
    ) -> None:
        require(0 < number <= most, f"{what}s are 1…{most}, not {number}")
        require_fits(kind, f"{what} {number}", exists=number in known)
        deleted = kind == p4r.Update.DELETE
        replicas = [] if deleted else _replicas(message.replicas)
        if isinstance(message, p4r.MulticastGroupEntry):
            self._pipeline.replication.set_group(number, replicas)
        else:
            length = 0 if deleted else message.packet_length_bytes
            require(
                0 <= length <= _MAX_LENGTH, f"a clone is cut to 0 (not) … {_MAX_LENGTH} bytes, not {length}"
            )
            self._pipeline.replication.set_session(number, replicas, length)
        if deleted:
            del known[number]
        else:
            known[number] = copy.deepcopy(message)


def _wanted(what: str, known: dict[int, _T], number: int) -> list[_T]:
    if number == 0:
        return list(known.values())
    if number not in known:
        raise not_found(f"there is no {what} {number}")
    return [known[number]]


def _entity(entry: p4r.PacketReplicationEngineEntry) -> p4r.Entity:
    return p4r.Entity(packet_replication_engine_entry=entry)


def _replicas(messages: Iterable[p4r.Replica]) -> list[Replica]:
    replicas = [_replica(message) for message in messages]
    require(len(set(replicas)) == len(replicas), "the (port, instance) pairs of a group must differ")
    return replicas


def _replica(message: p4r.Replica) -> Replica:
    if message.backup_replicas:
        raise unimplemented("backup replicas are not supported")
    if message.WhichOneof("port_kind") == "port":
        port = bytestrings.decode(message.port, _PORT_BITS, "a replica's port")
    else:
        port = message.egress_port
    require(port < 1 << _PORT_BITS, f"a replica's port has {_PORT_BITS} bits, {port} has more")
    require(
        message.instance < 1 << _INSTANCE_BITS,
        f"a replica's instance has {_INSTANCE_BITS} bits, {message.instance} has more",
    )
    return Replica(port, message.instance)
