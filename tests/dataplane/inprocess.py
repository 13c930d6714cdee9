# SPDX-License-Identifier: Apache-2.0
"""The engine in this process, interpreted or compiled. Packets and updates need no sockets and no gRPC."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence

from dataplane.harness import Frames, Program, Switch
from finsy import P4Schema
from finsy.proto import p4r

from railweave.switch import compiler
from railweave.switch.lowering import lower
from railweave.switch.p4runtime.device import Device
from railweave.switch.pipeline import Pipeline

_lowered = functools.cache(lower)


class DeviceControl:
    """A controller that writes directly to the server's device model."""

    device: Device

    def close(self) -> None:
        """Do nothing: there is no connection."""

    def load(self, schema: P4Schema) -> None:
        config = schema.get_pipeline_config()
        self.device = Device.of(config, Pipeline(*_lowered(config.p4_device_config)))

    def write(self, updates: Iterable[p4r.Update]) -> None:
        for update in updates:
            self.device.write(update)

    def read(self, pattern: p4r.Entity) -> list[p4r.Entity]:
        return list(self.device.read(pattern))


class InProcessSwitch(Switch):
    """A switch in this process. Its clock advances by 1 µs per packet."""

    def __init__(self) -> None:
        self._control = DeviceControl()
        super().__init__("inprocess", self._control)
        self._now_us = 0

    def exchange_many(self, packets: Sequence[tuple[int, bytes]]) -> Frames:
        frames: Frames = []
        for port, packet in packets:
            self._now_us += 1
            frames += self._control.device.pipeline.inject(port, packet, self._now_us)
        return frames


class CompiledSwitch(InProcessSwitch):
    """A switch in this process that runs machine code, as the switch's own process does after some time."""

    def load(self, program: Program) -> Switch:
        super().load(program)
        compiler.compiled(self._control.device.pipeline.native)
        return self
