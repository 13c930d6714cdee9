# SPDX-License-Identifier: Apache-2.0
"""The service `railweave.v1.Switch`: ports, impairments and traces, which P4Runtime lacks."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict
from typing import Any

import grpc

from railweave.errors import explain
from railweave.switch.errors import SwitchError
from railweave.switch.impairment import DIRECTIONS, parse_impairments
from railweave.switch.p4runtime.errors import refuse
from railweave.switch.p4runtime.server import Extra
from railweave.switch.pipeline import Pipeline, TraceBusy
from railweave.switch.ports import Ports
from railweave.v1 import switch_pb2, switch_pb2_grpc

_Context = grpc.aio.ServicerContext[Any, Any]

NO_PROGRAM = explain("the switch has no program yet", "a program", "push one with a controller")
MAX_TRACED = 100_000
_POLL_S = 0.02
_LINKS_S = 0.1  # how late a group may notice that a link is down


class Inspection(switch_pb2_grpc.SwitchServicer):
    """Serves one switch; it forwards pipelines to the ports, and so knows which program runs."""

    def __init__(self, ports: Ports) -> None:
        """There is no program yet. Set `say` to get a line whenever the way of execution changes."""
        self.say: Callable[[str], None] = lambda _: None
        self._ports = ports
        self._said = ""
        self._pipeline: Pipeline | None = None

    def use(self, pipeline: Pipeline) -> None:
        """Run packets through this pipeline from now on."""
        self._ports.use(pipeline)
        self._pipeline = pipeline
        self.look()

    def look(self) -> None:
        """Report the links that are down to the pipeline, and say how the program is executed now.

        Groups leave out members that watch links that are down.
        """
        if self._pipeline is None:
            return
        if self._pipeline.program.profiles:
            for port in self._ports.counters():
                self._pipeline.profiles.set_port_up(port.port, port.up)
        line = f"program {self._pipeline.program.name}: {self._ports.execution}"
        if line != self._said:
            self._said = line
            self.say(line)

    async def keep_watching(self) -> None:
        """Follow the links and the compiler until cancelled."""
        while True:
            await asyncio.sleep(_LINKS_S)
            self.look()

    def extra(self) -> Extra:
        """The service, to be added to a server."""
        name = switch_pb2.DESCRIPTOR.services_by_name["Switch"].full_name
        add: Any = switch_pb2_grpc.add_SwitchServicer_to_server  # generated without types
        return Extra(name, lambda server: add(self, server))

    async def GetPorts(  # noqa: N802 - gRPC's name
        self, request: switch_pb2.GetPortsRequest, context: _Context
    ) -> switch_pb2.GetPortsResponse:
        """Counters of the ports and of the program."""
        answer = switch_pb2.GetPortsResponse(time_ns=time.monotonic_ns())
        for port in self._ports.counters():
            answer.ports.append(switch_pb2.PortStatus(**asdict(port)))
            for direction in DIRECTIONS:
                counts = self._ports.impairment_counts(port.port, direction)
                if counts is not None:
                    status = switch_pb2.ImpairmentStatus(
                        port=port.port, direction=direction, **asdict(counts)
                    )
                    answer.impairments.append(status)
        if self._pipeline is not None:
            statistics = self._pipeline.native.statistics()
            fields = ("received", "emitted", "dropped", "aborted")
            answer.pipeline.program = self._pipeline.program.name
            answer.pipeline.execution = self._ports.execution
            for field in fields:
                setattr(answer.pipeline, field, statistics[field])
            for fusion in self._pipeline.program.fusions:
                answer.pipeline.scalar.extend(f"{fusion.action}: {line}" for line in fusion.scalar)
        return answer

    async def SetImpairments(  # noqa: N802 - gRPC's name
        self, request: switch_pb2.SetImpairmentsRequest, context: _Context
    ) -> switch_pb2.SetImpairmentsResponse:
        """Change links; nothing is changed if part of it is wrong."""
        numbers = [port.port for port in self._ports.counters()]
        try:
            cleared = parse_impairments([f"{text}:loss=0" for text in request.good], numbers)
            impaired = parse_impairments(request.bad, numbers)
        except SwitchError as error:
            refuse(context, grpc.StatusCode.INVALID_ARGUMENT, str(error))
        else:
            for port, direction in cleared:
                self._ports.set_impairment(port, direction, None)
            for (port, direction), impairment in impaired.items():
                self._ports.set_impairment(port, direction, impairment)
        return switch_pb2.SetImpairmentsResponse()

    async def Trace(  # noqa: N802 - gRPC's name
        self, request: switch_pb2.TraceRequest, context: _Context
    ) -> AsyncIterator[switch_pb2.TracedPacket]:
        """Follow packets until enough have been seen, or the client cancels."""
        pipeline = self._pipeline
        if pipeline is None:
            refuse(context, grpc.StatusCode.FAILED_PRECONDITION, NO_PROGRAM)
            return
        if not 1 <= request.count <= MAX_TRACED:
            message = explain(f"a trace of {request.count} packets", f"1…{MAX_TRACED}", "correct --count")
            refuse(context, grpc.StatusCode.INVALID_ARGUMENT, message)
            return
        port = request.port if request.HasField("port") else None
        try:
            # Lowers the program once more, with tracing: for large programs that takes a second.
            await asyncio.to_thread(pipeline.traces.start, port, request.count)
        except TraceBusy as busy:
            refuse(
                context,
                grpc.StatusCode.FAILED_PRECONDITION,
                explain(str(busy), "one trace at a time", "try again later"),
            )
            return
        try:
            left = request.count
            while left > 0:
                for trace in pipeline.traces.take():
                    left -= 1
                    yield switch_pb2.TracedPacket(json=json.dumps(trace.json()))
                await asyncio.sleep(_POLL_S)
        finally:
            pipeline.traces.stop()
