# SPDX-License-Identifier: Apache-2.0
"""Traces of a pipeline's packets."""

from __future__ import annotations

import threading

from railweave._native.engine import MAX_TRACE_PACKETS, Engine
from railweave.switch.lowering import lower_noting
from railweave.switch.program import Program
from railweave.switch.trace import Reader, Trace


class TraceBusy(RuntimeError):
    """Another trace of this pipeline is running."""


class Traces:
    """One trace at a time, of packets that come in while it runs."""

    def __init__(self, program: Program, engine: Engine, source: bytes) -> None:
        """Begin without a trace; `source` is the BMv2 JSON of the program that the engine runs."""
        self._program = program
        self._engine = engine
        self._source = source
        self._lock = threading.Lock()
        self._reader: Reader | None = None

    def start(self, port: int | None = None, count: int = 1) -> None:
        """Record the next `count` packets that come in on a port (None: on any); TraceBusy."""
        if not 1 <= count <= MAX_TRACE_PACKETS:
            raise ValueError(f"a trace has 1 to {MAX_TRACE_PACKETS} packets, not {count}")
        if port is not None and not 0 <= port < 1 << 16:
            raise ValueError(f"ports have 16 bits: {port}")
        plan, notes = lower_noting(self._source)
        with self._lock:
            if self._engine.tracing():
                raise TraceBusy("another trace of this switch is running")
            self._engine.start_trace(plan, port, count)
            errors = {number: name for name, number in self._program.errors.items()}
            digests = {number: digest.name for number, digest in self._program.digests.items()}
            self._reader = Reader(list(self._program.tables.values()), notes, errors, digests)

    def run(self, port: int, packet: bytes) -> Trace:
        """Run one packet to completion and return its trace; nothing is sent."""
        self.start(None, 1)
        try:
            self._engine.inject(port, packet, self._engine.now_us())
            [trace] = self.take()
        finally:
            self.stop()
        return trace

    def take(self) -> list[Trace]:
        """Return the packets recorded since the last call."""
        with self._lock:
            recorded = self._engine.take_traces()
            return [self._reader.trace(packet) for packet in recorded] if self._reader else []

    def stop(self) -> None:
        """End the trace; records that have not been taken are lost."""
        self._engine.stop_trace()
