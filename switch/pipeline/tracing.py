# SPDX-License-Identifier: Apache-2.0
"""Traces of a pipeline's packets."""

from __future__ import annotations

from railweave._native.engine import MAX_TRACE_PACKETS
from railweave.switch.lowering import lower_noting
from railweave.switch.pipeline.base import Base
from railweave.switch.trace import Reader, Trace


class TraceBusy(RuntimeError):
    """Another trace of this pipeline is running."""


class Tracing(Base):
    """One trace at a time, of packets that come in while it runs."""

    source: bytes = b""  # the BMv2 JSON that the pipeline was loaded from
    _reader: Reader | None = None

    def start_trace(self, port: int | None = None, count: int = 1) -> None:
        """Record the next `count` packets that come in on a port (None: on any); TraceBusy."""
        if not 1 <= count <= MAX_TRACE_PACKETS:
            raise ValueError(f"a trace has 1 to {MAX_TRACE_PACKETS} packets, not {count}")
        if port is not None and not 0 <= port < 1 << 16:
            raise ValueError(f"ports have 16 bits: {port}")
        plan, notes = lower_noting(self.source)
        with self._lock:
            if self.native.tracing():
                raise TraceBusy("another trace of this switch is running")
            self.native.start_trace(plan, port, count)
            program = self.program
            errors = {number: name for name, number in program.errors.items()}
            digests = {number: digest.name for number, digest in program.digests.items()}
            self._reader = Reader(list(program.tables.values()), notes, errors, digests)

    def trace(self, port: int, packet: bytes, now_us: int | None = None) -> Trace:
        """Run one packet to completion and return its trace; nothing is sent."""
        self.start_trace(None, 1)
        try:
            self.native.inject(port, packet, self._now(now_us))
            [trace] = self.take_traces()
        finally:
            self.stop_trace()
        return trace

    def take_traces(self) -> list[Trace]:
        """What has been recorded since the last call."""
        with self._lock:
            recorded = self.native.take_traces()
            return [self._reader.trace(packet) for packet in recorded] if self._reader else []

    def stop_trace(self) -> None:
        """End the trace; what has not been taken is lost."""
        self.native.stop_trace()
