# SPDX-License-Identifier: Apache-2.0
"""SetForwardingPipelineConfig and its relatives: which program runs, and which one waits."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable

from finsy.proto import p4r
from google.protobuf.message import DecodeError

from railweave.switch import pauses
from railweave.switch.errors import InvalidProgram, UnsupportedConstruct
from railweave.switch.p4runtime.device import Device
from railweave.switch.p4runtime.errors import Code, Refused, failed_precondition, invalid, require
from railweave.switch.p4runtime.reconcile import Handover
from railweave.switch.p4runtime.turns import Turns
from railweave.switch.pipeline import Pipeline
from railweave.v1 import switch_pb2

_Set = p4r.SetForwardingPipelineConfigRequest
_Get = p4r.GetForwardingPipelineConfigRequest
_WITH_CONFIG = (_Set.VERIFY, _Set.VERIFY_AND_SAVE, _Set.VERIFY_AND_COMMIT, _Set.RECONCILE_AND_COMMIT)

# Packets shall go through this device from then on; what is given is called while none passes.
Commit = Callable[[Device, Callable[[], None] | None], None]


class PipelineConfig:
    """The committed device, the saved one, and the rules that lead from one to the next."""

    def __init__(self, commit: Commit, turns: Turns) -> None:
        """`commit` is told every device that packets shall go through from then on."""
        self._commit = commit
        self._turns = turns
        self._committed: Device | None = None
        self._saved: Device | None = None
        self._turn = asyncio.Lock()

    @property
    def committed(self) -> Device | None:
        """The device that packets go through."""
        return self._committed

    @property
    def device(self) -> Device:
        """The device that is written and read: the saved one from VERIFY_AND_SAVE to COMMIT, else what runs.

        So what is written between the two is in place when the saved program begins to run. Refused if there
        is neither.
        """
        device = self._saved or self._committed
        if device is None:
            raise failed_precondition("No forwarding pipeline config set for this device")
        return device

    async def set(
        self, request: p4r.SetForwardingPipelineConfigRequest, still_allowed: Callable[[], object] = bool
    ) -> None:
        """Carry out the request's action; a Refused one changes nothing.

        `still_allowed` is called when a program has been loaded, which takes a while, and may refuse.
        """
        async with self._turn:
            if request.action == _Set.COMMIT:
                self._commit_saved(request)
                return
            require(
                request.action in _WITH_CONFIG,
                f"action {request.action} is none of VERIFY, VERIFY_AND_SAVE, VERIFY_AND_COMMIT, COMMIT, "
                "RECONCILE_AND_COMMIT",
            )
            config = _copy(request)
            same = self._committed is not None and _same_program(self._committed.config, config)
            if request.action == _Set.RECONCILE_AND_COMMIT and same and self._committed is not None:
                self._adopt_cookie(self._committed, config)
                return
            device = await _load(config)
            still_allowed()
            match request.action:
                case _Set.VERIFY_AND_SAVE:
                    self._saved = device
                case _Set.VERIFY_AND_COMMIT:
                    self._activate(device)
                case _Set.RECONCILE_AND_COMMIT:
                    await self._reconcile(device, still_allowed)

    def get(
        self, response_type: p4r.GetForwardingPipelineConfigRequest.ResponseType.ValueType
    ) -> p4r.GetForwardingPipelineConfigResponse:
        """As much of the committed config as was asked for; without a config while there is none."""
        answer = p4r.GetForwardingPipelineConfigResponse()
        if self._committed is None:
            return answer
        config = self._committed.config
        answer.config.SetInParent()
        if config.HasField("cookie"):
            answer.config.cookie.CopyFrom(config.cookie)
        if response_type in (_Get.ALL, _Get.P4INFO_AND_COOKIE):
            answer.config.p4info.CopyFrom(config.p4info)
        if response_type in (_Get.ALL, _Get.DEVICE_CONFIG_AND_COOKIE):
            answer.config.p4_device_config = config.p4_device_config
        return answer

    def _commit_saved(self, request: p4r.SetForwardingPipelineConfigRequest) -> None:
        require(not request.HasField("config"), "COMMIT takes the saved config, not one of its own")
        if self._saved is None:
            raise Refused(Code.NOT_FOUND, "there is no saved config to commit", "VERIFY_AND_SAVE one first")
        self._activate(self._saved)

    def _adopt_cookie(self, device: Device, config: p4r.ForwardingPipelineConfig) -> None:
        """Keep a device, with all of its state, under the cookie of the same program's new config."""
        device.config.ClearField("cookie")
        if config.HasField("cookie"):
            device.config.cookie.CopyFrom(config.cookie)
        self._saved = None

    async def _reconcile(self, device: Device, still_allowed: Callable[[], object]) -> None:
        old = self._committed
        if old is None:
            self._activate(device)
            return
        with Handover(old, device) as handover:
            async for _ in self._turns.chunks(handover.steps()):
                pass
            handover.last_writes()
            still_allowed()
            self._activate(device, handover.last_cells)

    def _activate(self, device: Device, handover: Callable[[], None] | None = None) -> None:
        self._commit(device, handover)
        self._committed = device
        self._saved = None


def _copy(request: p4r.SetForwardingPipelineConfigRequest) -> p4r.ForwardingPipelineConfig:
    config = copy.deepcopy(request.config)
    require(config.p4_device_config, "the config has no p4_device_config (BMv2 JSON as p4c emits it)")
    require(config.HasField("p4info"), "the config has no P4Info")
    return config


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


def _same_program(ours: p4r.ForwardingPipelineConfig, theirs: p4r.ForwardingPipelineConfig) -> bool:
    return ours.p4_device_config == theirs.p4_device_config and ours.p4info == theirs.p4info
