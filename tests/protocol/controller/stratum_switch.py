# SPDX-License-Identifier: Apache-2.0
"""The fake switch with the rules by which Stratum's server for Tofino differs.

The rules come from github.com/stratum/stratum (f8f7130), from its folder stratum. The file
hal/lib/common/p4_service.cc has device and election ids, and the pipeline after a restart.
The files bfrt_node.cc, bfrt_table_manager.cc and bfrt_pre_manager.cc in hal/lib/barefoot have the pipeline's
format, atomicity, entities, priorities, constant tables and replicas. Every client is the primary. The
codes are in public/lib/error.cc. The port of P4Runtime is
gNMI's `ifindex` (hal/lib/common/yang_parse_tree_paths.cc).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Any

import grpc
from bf_pipeline_config import BfPipelineConfig
from fake_switch import FakeSwitch, key_of
from finsy.proto import gnmi, gnmi_grpc, p4i, p4r, rpc_code, rpc_status
from google.protobuf.message import DecodeError

_Set = p4r.SetForwardingPipelineConfigRequest
READABLE = (
    "table_entry",
    "packet_replication_engine_entry",
    "counter_entry",
    "register_entry",
    "meter_entry",
)
WRITABLE = (
    *READABLE,
    "action_profile_member",
    "action_profile_group",
    "direct_counter_entry",
    "digest_entry",
)
PRIORITY = (p4i.MatchField.TERNARY, p4i.MatchField.RANGE)


class _Refused(Exception):
    """A status that Stratum returns."""

    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class StratumSwitch(FakeSwitch):
    """One node of a chassis. `ports` maps the names of its front-panel ports to numbers."""

    def __init__(self, device_id: int = 1, ports: dict[str, int] | None = None) -> None:
        super().__init__(device_id)
        self.ports = ports or {}
        self.pipeline: Any = None
        self.verified = 0

    def _serve_gnmi(self, server: grpc.aio.Server) -> None:
        gnmi_grpc.add_gNMIServicer_to_server(_Ports(self.ports), server)

    async def restart(self, *, lose_state: bool) -> None:
        """Restart with the saved pipeline and with empty tables."""
        config = self.config
        await super().restart(lose_state=lose_state)
        self.config = config

    async def StreamChannel(self, request_iterator, context) -> AsyncIterator[p4r.StreamMessageResponse]:
        async def checked() -> AsyncIterator[p4r.StreamMessageRequest]:
            async for request in request_iterator:
                asked = request.arbitration
                if not asked.device_id or not asked.election_id.low:
                    await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "Invalid node (aka device) ID.")
                if asked.device_id != self.device_id:
                    unknown = (
                        f"Node with ID {asked.device_id} is unknown or no config has been pushed to it yet."
                    )
                    await context.abort(grpc.StatusCode.NOT_FOUND, unknown)
                yield request

        async for answer in super().StreamChannel(checked(), context):
            yield answer

    async def SetForwardingPipelineConfig(self, request, context) -> p4r.SetForwardingPipelineConfigResponse:
        if request.action == _Set.RECONCILE_AND_COMMIT:
            await context.abort(
                grpc.StatusCode.UNIMPLEMENTED, "RECONCILE_AND_COMMIT action not supported yet"
            )
        if not request.config.p4_device_config:
            await context.abort(grpc.StatusCode.INTERNAL, "Missing P4 device config")
        try:
            pipeline = BfPipelineConfig.FromString(request.config.p4_device_config)
        except DecodeError:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "Unknown format for p4_device_config.")
        if self.refusal:
            await context.abort(grpc.StatusCode.INTERNAL, self.refusal)
        if request.action == _Set.VERIFY:
            self.verified += 1
            return p4r.SetForwardingPipelineConfigResponse()
        self.pipeline = pipeline
        return await super().SetForwardingPipelineConfig(request, context)

    async def GetForwardingPipelineConfig(self, request, context) -> p4r.GetForwardingPipelineConfigResponse:
        await self._require_pipeline(request, context)
        return await super().GetForwardingPipelineConfig(request, context)

    async def Write(self, request, context) -> p4r.WriteResponse:
        await self._require_pipeline(request, context)
        if request.atomicity != p4r.WriteRequest.CONTINUE_ON_ERROR:
            await context.abort(grpc.StatusCode.INTERNAL, "Request atomicity is not supported.")
        details = [self._carried_out(update) for update in request.updates]
        await _report(details, "write", context)
        return p4r.WriteResponse()

    async def Read(self, request, context) -> AsyncIterator[p4r.ReadResponse]:
        await self._require_pipeline(request, context)
        details = []
        for wildcard in request.entities:
            kind = wildcard.WhichOneof("entity")
            if kind in READABLE:
                yield p4r.ReadResponse(entities=[*self._answers(wildcard), *self._constants(wildcard)])
                details.append(p4r.Error(canonical_code=rpc_code.OK))
            else:
                details.append(_error(grpc.StatusCode.UNIMPLEMENTED, f"Unsupported entity type: {kind}"))
        await _report(details, "read", context)

    def _constants(self, wildcard: p4r.Entity) -> Iterable[p4r.Entity]:
        """Yield an entry of each constant table. The entries are not marked as constant."""
        if wildcard.WhichOneof("entity") != "table_entry":
            return
        for table in self.p4info.tables:
            if table.is_const_table and wildcard.table_entry.table_id in (0, table.preamble.id):
                entry = p4r.TableEntry(table_id=table.preamble.id)
                action = next(a for a in self.p4info.actions if a.preamble.id == table.action_refs[0].id)
                entry.action.action.action_id = action.preamble.id
                for param in action.params:
                    entry.action.action.params.add(param_id=param.id, value=b"\0")
                yield p4r.Entity(table_entry=entry)

    def _carried_out(self, update: p4r.Update) -> p4r.Error:
        """Carry out an update. The rest of the request is carried out also if the update fails."""
        try:
            self._carry_out(update)
        except _Refused as refused:
            return _error(refused.code, str(refused))
        self.updates.append(update)
        return p4r.Error(canonical_code=rpc_code.OK)

    def _carry_out(self, update: p4r.Update) -> None:
        kind = update.entity.WhichOneof("entity")
        if kind not in WRITABLE:
            raise _Refused(grpc.StatusCode.UNIMPLEMENTED, f"Unsupported entity type: {kind}")
        if kind == "table_entry":
            self._check_entry(update.entity.table_entry)
        key = key_of(update.entity)
        if update.type == p4r.Update.INSERT and key in self.entities:
            raise _Refused(grpc.StatusCode.ALREADY_EXISTS, "Already exists.")
        if update.type != p4r.Update.INSERT and key not in self.entities:
            raise _Refused(grpc.StatusCode.NOT_FOUND, "Entry not found.")
        if update.type == p4r.Update.DELETE:
            del self.entities[key]
            self.packets.pop(key, None)
            return
        if update.type == p4r.Update.INSERT and self.room is not None:
            if not self.room:
                self.refused += 1
                raise _Refused(grpc.StatusCode.RESOURCE_EXHAUSTED, "No space left.")
            self.room -= 1
        entity = p4r.Entity()
        entity.CopyFrom(update.entity)
        for replica in entity.packet_replication_engine_entry.multicast_group_entry.replicas:
            replica.ClearField("port")  # Stratum only reads the older `egress_port`
        self.entities[key] = entity

    def _check_entry(self, entry: p4r.TableEntry) -> None:
        table = next((t for t in self.p4info.tables if t.preamble.id == entry.table_id), None)
        if table is None:
            raise _Refused(grpc.StatusCode.NOT_FOUND, f"No table {entry.table_id}")
        if table.is_const_table:
            raise _Refused(
                grpc.StatusCode.PERMISSION_DENIED, f"Can't write to const table {table.preamble.name}"
            )
        if bool(entry.priority) != any(field.match_type in PRIORITY for field in table.match_fields):
            raise _Refused(grpc.StatusCode.INVALID_ARGUMENT, "Wrong priority.")

    async def _require_pipeline(self, request, context) -> None:
        if not request.device_id:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "Invalid device ID.")
        if self.config is None or request.device_id != self.device_id:
            await context.abort(
                grpc.StatusCode.FAILED_PRECONDITION,
                "Invalid node id or no valid forwarding pipeline config has been pushed for node "
                f"{request.device_id} yet.",
            )


class _Ports(gnmi_grpc.gNMIServicer):
    """A gNMI server with the numbers of the ports. All ports are up."""

    def __init__(self, ports: dict[str, int]) -> None:
        self._ports = ports

    async def Get(self, request, context) -> gnmi.GetResponse:
        updates = [
            gnmi.Update(path=_path(name, "ifindex"), val=gnmi.TypedValue(uint_val=number))
            for name, number in self._ports.items()
        ]
        return gnmi.GetResponse(notification=[gnmi.Notification(update=updates)])

    async def Subscribe(self, request_iterator, context) -> AsyncIterator[gnmi.SubscribeResponse]:
        async for _ in request_iterator:
            yield gnmi.SubscribeResponse(sync_response=True)


def _path(name: str, leaf: str) -> gnmi.Path:
    elements = [
        gnmi.PathElem(name="interfaces"),
        gnmi.PathElem(name="interface", key={"name": name}),
        *(gnmi.PathElem(name=part) for part in ("state", leaf)),
    ]
    return gnmi.Path(elem=elements)


def _error(code: grpc.StatusCode, message: str) -> p4r.Error:
    return p4r.Error(canonical_code=code.value[0], message=message)


async def _report(details: list[p4r.Error], what: str, context: Any) -> None:
    """If any detail reports a failure, end the call with UNKNOWN and the details of all items."""
    if all(detail.canonical_code == rpc_code.OK for detail in details):
        return
    status = rpc_status.Status(code=rpc_code.UNKNOWN, message=f"One or more {what} operations failed.")
    for detail in details:
        status.details.add().Pack(detail)
    context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
    await context.abort(grpc.StatusCode.UNKNOWN, status.message)
