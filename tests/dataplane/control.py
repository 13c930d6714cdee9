# SPDX-License-Identifier: Apache-2.0
"""A plain synchronous P4Runtime controller, with which data-plane tests write and read tables."""

from __future__ import annotations

import queue
from collections.abc import Iterable, Iterator
from typing import Protocol

import grpc
from finsy import P4Schema
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
