# SPDX-License-Identifier: Apache-2.0
"""SetForwardingPipelineConfig and GetForwardingPipelineConfig: the committed program and the saved one."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Collection

from finsy.proto import p4r
from google.protobuf.message import DecodeError

from railweave.switch import pauses
from railweave.switch.errors import InvalidProgram, UnsupportedConstruct
from railweave.switch.p4runtime.device import Device
from railweave.switch.p4runtime.errors import failed_precondition, invalid, not_found, require, unimplemented
from railweave.switch.p4runtime.turns import Turns
from railweave.switch.pipeline import Pipeline
from railweave.v1 import switch_pb2

_Set = p4r.SetForwardingPipelineConfigRequest
_Get = p4r.GetForwardingPipelineConfigRequest


class PipelineConfig:
    """The committed device and the saved one."""

    def __init__(self, commit: Callable[[Device], None], turns: Turns) -> None:
        """Call `commit` with every device that packets go through from then on."""
        self._commit = commit
        self._turns = turns
        self.committed: Device | None = None  # packets go through it
        self._saved: Device | None = None
        self._loading = Turns()  # one program at a time, while other requests go on
        self.ports: Collection[int] | None = None  # of the switch; None: not known

    @property
    def device(self) -> Device:
        """Return the device that is written and read: the saved device, else the committed device.

        So entries that are written before COMMIT are in place when the saved program begins to run. Refused
        if there is no device.
        """
        device = self._saved or self.committed
        if device is None:
            raise failed_precondition("No forwarding pipeline config set for this device")
        return device

    async def set(
        self, request: p4r.SetForwardingPipelineConfigRequest, still_allowed: Callable[[], object] = bool
    ) -> None:
        """Carry out the request's action. A refused request changes nothing.

        `still_allowed` may refuse. It is called after the program has been loaded, which takes a while.
        """
        if request.action == _Set.RECONCILE_AND_COMMIT:
            raise unimplemented(
                "RECONCILE_AND_COMMIT is not supported", "VERIFY_AND_COMMIT, and write the entries again"
            )
        require(
            request.action in (_Set.VERIFY, _Set.VERIFY_AND_SAVE, _Set.VERIFY_AND_COMMIT, _Set.COMMIT),
            f"action {request.action} is none of VERIFY, VERIFY_AND_SAVE, VERIFY_AND_COMMIT, COMMIT",
        )
        device = None
        if request.action == _Set.COMMIT:
            require(not request.HasField("config"), "COMMIT takes the saved config, not one of its own")
        else:
            config = copy.deepcopy(request.config)
            require(config.p4_device_config, "the config has no p4_device_config (BMv2 JSON as p4c emits it)")
            require(config.HasField("p4info"), "the config has no P4Info")
            device = await self._loading.to_the_end(lambda: _load(config))
            device.pipeline.ports = self.ports

        async def take() -> None:
            still_allowed()
            self._take(request.action, device)

        await self._turns.to_the_end(take)

    def get(
        self, response_type: p4r.GetForwardingPipelineConfigRequest.ResponseType.ValueType
    ) -> p4r.GetForwardingPipelineConfigResponse:
        """Return the requested parts of the committed config, if there is a committed config."""
        answer = p4r.GetForwardingPipelineConfigResponse()
        if self.committed is None:
            return answer
        config = self.committed.config
        answer.config.SetInParent()
        if config.HasField("cookie"):
            answer.config.cookie.CopyFrom(config.cookie)
        if response_type in (_Get.ALL, _Get.P4INFO_AND_COOKIE):
            answer.config.p4info.CopyFrom(config.p4info)
        if response_type in (_Get.ALL, _Get.DEVICE_CONFIG_AND_COOKIE):
            answer.config.p4_device_config = config.p4_device_config
        return answer

    def _take(self, action: _Set.Action.ValueType, loaded: Device | None) -> None:
        match action:
            case _Set.VERIFY_AND_SAVE:
                self._saved = loaded
                return
            case _Set.VERIFY:
                return
        device = loaded or self._saved
        if device is None:
            raise not_found("there is no saved config to commit", "VERIFY_AND_SAVE one first")
        self._commit(device)
        self.committed, self._saved = device, None


async def _load(config: p4r.ForwardingPipelineConfig) -> Device:
    def load() -> Device:
        with pauses.collected_after():
            return Device.of(config, Pipeline.load(_program(config)))

    try:
        return await asyncio.to_thread(load)
    except UnsupportedConstruct as error:
        raise invalid(f"this target cannot realize the config: {error}", "") from None
    except InvalidProgram as error:
        raise invalid(f"p4_device_config: {error}", "") from None


def _program(config: p4r.ForwardingPipelineConfig) -> bytes:
    """Return the BMv2 JSON, which may come inside a p4.tmp.P4DeviceConfig; JSON never parses as one."""
    try:
        wrapped = switch_pb2.DeviceConfig.FromString(config.p4_device_config)
    except DecodeError:
        return config.p4_device_config
    return wrapped.device_data or config.p4_device_config
