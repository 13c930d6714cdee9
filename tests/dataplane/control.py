# SPDX-License-Identifier: Apache-2.0
"""A plain synchronous P4Runtime controller, with which data-plane tests write and read tables."""

from __future__ import annotations

import queue
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import finsy as fy
import grpc
from finsy import P4Schema
from finsy.p4entity import decode_entity
from finsy.proto import U128, p4r, p4r_grpc

DEADLINE_S = 20.0
_Config = p4r.SetForwardingPipelineConfigRequest


class Control(Protocol):
    """An object that writes updates and reads entities."""

    def close(self) -> None: ...
    def load(self, schema: P4Schema) -> None: ...
    def write(self, updates: Iterable[p4r.Update]) -> None: ...
    def read(self, pattern: p4r.Entity) -> list[p4r.Entity]: ...


class GrpcControl:
    """The primary controller of a switch process. Its stream stays open until `close`."""

    def __init__(self, address: str, device_id: int = 1, election_id: int = 1) -> None:
        self._device_id = device_id
        self._election_id = U128.encode(election_id)
        self._channel = grpc.insecure_channel(
            address, options=[("grpc.max_receive_message_length", 64 << 20)]
        )
        self._stub = p4r_grpc.P4RuntimeStub(self._channel)
        self._requests: queue.SimpleQueue[p4r.StreamMessageRequest | None] = queue.SimpleQueue()
        update = p4r.MasterArbitrationUpdate(device_id=device_id, election_id=self._election_id)
        self._requests.put(p4r.StreamMessageRequest(arbitration=update))
        self.stream: Iterator[p4r.StreamMessageResponse] = self._stub.StreamChannel(
            iter(self._requests.get, None), wait_for_ready=True
        )
        response = next(self.stream)
        assert response.arbitration.status.code == grpc.StatusCode.OK.value[0], response

    def close(self) -> None:
        self._requests.put(None)
        self._channel.close()

    def load(self, schema: P4Schema) -> None:
        """Load another program and clear all state of the earlier program."""
        self._delete_groups()
        request = _Config(
            device_id=self._device_id, election_id=self._election_id, action=_Config.VERIFY_AND_COMMIT
        )
        request.config.CopyFrom(schema.get_pipeline_config())
        self._stub.SetForwardingPipelineConfig(request, timeout=DEADLINE_S)

    def _delete_groups(self) -> None:
        """Delete the multicast groups. After a program change, BMv2 keeps but no longer shows them."""
        groups = p4r.Entity()
        groups.packet_replication_engine_entry.multicast_group_entry.SetInParent()
        try:
            there = self.read(groups)
        except grpc.RpcError as error:
            if error.code() == grpc.StatusCode.FAILED_PRECONDITION:  # no program yet, so no groups
                return
            raise
        self.write(p4r.Update(type=p4r.Update.DELETE, entity=group) for group in there)

    def write(self, updates: Iterable[p4r.Update]) -> None:
        request = p4r.WriteRequest(
            device_id=self._device_id, election_id=self._election_id, updates=list(updates)
        )
        if request.updates:
            self._stub.Write(request, timeout=DEADLINE_S)

    def read(self, pattern: p4r.Entity) -> list[p4r.Entity]:
        request = p4r.ReadRequest(device_id=self._device_id, entities=[pattern])
        return [entity for reply in self._stub.Read(request, timeout=DEADLINE_S) for entity in reply.entities]


Values: TypeAlias = Mapping[str, int]
MatchValues: TypeAlias = Mapping[str, int | str]
NONE: Values = {}


def entry(table: str, match: MatchValues, priority: int = 0, **more: Any) -> fy.P4TableEntry:
    return fy.P4TableEntry(table, match=fy.P4TableMatch(match), priority=priority, **more)


class Tables:
    """The tables of a switch and its multicast groups, by their names in the P4 program."""

    schema: P4Schema
    control: Control

    def insert(
        self,
        table: str,
        match: MatchValues,
        action: str | None = None,
        params: Values = NONE,
        priority: int = 0,
        member: int | None = None,
        group: int | None = None,
        one_shot: Sequence[tuple[str, Values, int]] = (),
    ) -> None:
        """Add an entry: with an action, a member or a group of its profile, or (action, params, weight)s."""
        chosen: Any = fy.P4TableAction(action, **params) if action else None
        if member is not None:
            chosen = fy.P4IndirectAction(member_id=member)
        elif group is not None:
            chosen = fy.P4IndirectAction(group_id=group)
        elif one_shot:
            weighted = [(weight, fy.P4TableAction(name, **given)) for name, given, weight in one_shot]
            chosen = fy.P4IndirectAction(weighted)
        self._write(entry(table, match, priority, action=chosen))

    def modify(
        self, table: str, match: MatchValues, action: str, params: Values = NONE, priority: int = 0
    ) -> None:
        """Give an entry another action."""
        chosen = fy.P4TableAction(action, **params)
        self._write(entry(table, match, priority, action=chosen), p4r.Update.MODIFY)

    def delete(self, table: str, match: MatchValues, priority: int = 0) -> None:
        self._write(entry(table, match, priority), p4r.Update.DELETE)

    def default(self, table: str, action: str, params: Values = NONE) -> None:
        """Set the default action of a table."""
        chosen = fy.P4TableAction(action, **params)
        self._write(fy.P4TableEntry(table, action=chosen, is_default_action=True), p4r.Update.MODIFY)

    def multicast(self, group: int, replicas: Sequence[tuple[int, int]]) -> None:
        """Make a multicast group of (port, instance) pairs."""
        self._write(fy.P4MulticastGroupEntry(group, replicas=[tuple(replica) for replica in replicas]))

    def _write(self, entity: Any, kind: p4r.Update.Type.ValueType = p4r.Update.INSERT) -> None:
        self.control.write([p4r.Update(type=kind, entity=entity.encode(self.schema))])

    def _read(self, pattern: Any) -> list[Any]:
        return [decode_entity(e, self.schema) for e in self.control.read(pattern.encode(self.schema))]
