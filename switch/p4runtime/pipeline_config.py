# SPDX-License-Identifier: Apache-2.0
"""SetForwardingPipelineConfig and its relatives: which program runs, and which one waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from finsy.proto import p4r
from railweave.switch.errors import InvalidProgram, UnsupportedConstruct
from railweave.switch.p4runtime.device import Device
from railweave.switch.p4runtime.errors import Code, Refused, invalid, require, unimplemented
from railweave.switch.pipeline import Pipeline

_Set = p4r.SetForwardingPipelineConfigRequest
_Get = p4r.GetForwardingPipelineConfigRequest

Commit = Callable[[Pipeline], None]


class PipelineConfig:
    """The committed device, the saved one, and the rules that lead from one to the next."""

    def __init__(self, commit: Commit) -> None:
        """`commit` is told every pipeline that packets shall go through from then on."""
        self._commit = commit
        self._committed: Device | None = None
        self._saved: Device | None = None
        self._turn = asyncio.Lock()

    @property
    def device(self) -> Device:
        """The device that runs; Refused while there is none."""
        if self._committed is None:
            raise Refused(Code.FAILED_PRECONDITION, "No forwarding pipeline config set for this device")
        return self._committed

    async def set(self, request: p4r.SetForwardingPipelineConfigRequest) -> None:
        """Carry out the request's action; a Refused one changes nothing."""
        async with self._turn:
            match request.action:
                case _Set.VERIFY:
                    await self._load(request)
                case _Set.VERIFY_AND_SAVE:
                    self._saved = await self._load(request)
                case _Set.VERIFY_AND_COMMIT:
                    self._activate(await self._load(request))
                case _Set.RECONCILE_AND_COMMIT:
                    await self._reconcile(request)
                case _Set.COMMIT:
                    if self._saved is None:
                        raise Refused(Code.NOT_FOUND, "there is no saved config to commit")
                    require(
                        not request.HasField("config"),
                        invalid,
                        "COMMIT takes the saved config, not one of its own",
                    )
                    self._activate(self._saved)
                case _:
                    raise invalid(f"unknown action {request.action}")

    def get(
        self, response_type: p4r.GetForwardingPipelineConfigRequest.ResponseType.ValueType
    ) -> p4r.ForwardingPipelineConfig:
        """As much of the committed config as was asked for."""
        config = self.device.config
        answer = p4r.ForwardingPipelineConfig()
        if config.HasField("cookie"):
            answer.cookie.CopyFrom(config.cookie)
        if response_type in (_Get.ALL, _Get.P4INFO_AND_COOKIE):
            answer.p4info.CopyFrom(config.p4info)
        if response_type in (_Get.ALL, _Get.DEVICE_CONFIG_AND_COOKIE):
            answer.p4_device_config = config.p4_device_config
        return answer

    async def _load(self, request: p4r.SetForwardingPipelineConfigRequest) -> Device:
        config = p4r.ForwardingPipelineConfig()
        config.CopyFrom(request.config)
        require(
            config.p4_device_config, invalid, "the config has no p4_device_config (BMv2 JSON as p4c emits it)"
        )
        require(config.HasField("p4info"), invalid, "the config has no P4Info")
        try:
            pipeline = await asyncio.to_thread(Pipeline.load, config.p4_device_config)
        except UnsupportedConstruct as error:
            raise unimplemented(str(error)) from None
        except InvalidProgram as error:
            raise invalid(f"p4_device_config: {error}") from None
        return Device.of(config, pipeline)

    def _activate(self, device: Device) -> None:
        self._commit(device.pipeline)
        self._committed = device
        self._saved = None

    async def _reconcile(self, request: p4r.SetForwardingPipelineConfigRequest) -> None:
        """Keep the forwarding state: all of it under the same program, else what can be written again."""
        if self._committed is not None and _same_program(self._committed.config, request.config):
            self._committed.config.cookie.CopyFrom(request.config.cookie)
            return
        device = await self._load(request)
        for entity in self._committed.written() if self._committed else ():
            default = entity.HasField("table_entry") and entity.table_entry.is_default_action
            kind = p4r.Update.MODIFY if default else p4r.Update.INSERT
            try:
                device.write(p4r.Update(type=kind, entity=entity))
            except Refused as refusal:
                raise Refused(
                    Code.FAILED_PRECONDITION,
                    f"the new program cannot keep what is written ({refusal.message}); use VERIFY_AND_COMMIT",
                ) from None
        self._activate(device)


def _same_program(ours: p4r.ForwardingPipelineConfig, theirs: p4r.ForwardingPipelineConfig) -> bool:
    return ours.p4_device_config == theirs.p4_device_config and ours.p4info == theirs.p4info
