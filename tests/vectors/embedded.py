# SPDX-License-Identifier: Apache-2.0
"""The embedded engine as a target, in this process. Its clock advances by 10 µs per packet."""

from __future__ import annotations

from collections.abc import Sequence

import finsy as fy
from dataplane.inprocess import DeviceControl
from finsy.proto import p4r
from vectors.steps import Controlled, Frames, Packet

from railweave.switch import compiler
from railweave.switch.p4runtime.device import Device
from railweave.switch.pipeline import Pipeline


class Embedded(Controlled):
    """A loaded pipeline with its P4Info, interpreted or compiled."""

    def __init__(self, schema: fy.P4Schema, pipeline: Pipeline, *, compiled: bool = False) -> None:
        control = DeviceControl()
        control.device = Device.of(p4r.ForwardingPipelineConfig(p4info=schema.p4info), pipeline)
        super().__init__(schema, control)
        self.pipeline = pipeline
        if compiled:
            compiler.compiled(pipeline.native)
        self._now_us = 0

    def packets(self, batch: Sequence[Packet]) -> list[Frames]:
        """Send packets one by one. Return the output of each, sorted by port."""
        return [self._packet(packet) for packet in batch]

    def _packet(self, packet: Packet) -> Frames:
        self._now_us += 10
        frames = self.pipeline.inject(packet.port, bytes.fromhex(packet.data), self._now_us)
        return sorted(((port, data.hex()) for port, data in frames), key=lambda frame: frame[0])

    def digests(self, name: str) -> list[list[str]]:
        """Return the messages of a digest since the last call."""
        return [
            [f"{value:x}" for value in digest.values]
            for digest in self.pipeline.digests()
            if digest.name == name or digest.name.endswith(f".{name}")
        ]
