# SPDX-License-Identifier: Apache-2.0
"""The service `railweave.v1.Switch`: ports, impairments, traces and messages, which P4Runtime lacks."""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict
from typing import Any

import grpc
from finsy.proto import p4r

from railweave.errors import explain
from railweave.switch.errors import SwitchError
from railweave.switch.impairment import DIRECTIONS, parse_impairments
from railweave.switch.p4runtime.errors import Refused, refuse
from railweave.switch.p4runtime.server import Extra
from railweave.switch.p4runtime.service import Service
from railweave.switch.pipeline import Pipeline, TraceBusy
from railweave.switch.ports import Ports
from railweave.v1 import switch_pb2, switch_pb2_grpc

_Context = grpc.aio.ServicerContext[Any, Any]

NO_PROGRAM = explain("the switch has no program yet", "a program", "push one with a controller")
MAX_TRACED = 100_000
_LOG_MESSAGES, _LOG_CHARACTERS = 1000, 1000  # the most that are kept, and of one message
_POLL_S = 0.02
_LINKS_S = 0.1  # how late a group may notice that a link is down


class Inspection(switch_pb2_grpc.SwitchServicer):
    """Serves one switch; it forwards pipelines to the ports, and so knows which program runs."""

    def __init__(self, ports: Ports, service: Service) -> None:
        """Begin without a program. `say` gets the program's messages, and how the program is executed.

        `service` knows who may impair links and trace packets.
        """
        self.say: Callable[[str], None] = lambda _: None
        self._log: deque[switch_pb2.LogMessage] = deque(maxlen=_LOG_MESSAGES)
        self._service = service
        self._ports = ports
        self._said = ""
        self._pipeline: Pipeline | None = None

    def use(self, pipeline: Pipeline) -> None:
        """Run packets through this pipeline from now on."""
        pipeline.set_logging(on=bool(pipeline.program.messages))
        self._ports.use(pipeline)
        self.take_log()  # of the pipeline before
        self._pipeline = pipeline
        self.look()

    def look(self) -> None:
        """Report the links that are down to the pipeline, say how the program is executed, take its messages.

        Groups leave out members that watch links that are down.
        """
        self.take_log()
        if self._pipeline is None:
            return
        if self._pipeline.program.profiles:
            for port in self._ports.counters():
                self._pipeline.set_port_up(port.port, port.up)
        line = f"program {self._pipeline.program.name}: {self._ports.execution}"
        if line != self._said:
            self._said = line
            self.say(line)

    def take_log(self) -> None:
        """Take the program's new messages: keep the latest, and say each."""
        if self._pipeline is None or not self._pipeline.program.messages:
            return
        log = self._pipeline.take_log()
        lines = [text[:_LOG_CHARACTERS] for text in log.messages]
        if log.lost:
            lines.append(f"{log.lost} messages were left out: too many came at once")
        for text in lines:
            self._log.append(switch_pb2.LogMessage(time_ns=time.time_ns(), text=text))
            self.say(text)

    async def keep_watching(self) -> None:
        """Follow the links and the compiler until cancelled."""
        while True:
            await asyncio.sleep(_LINKS_S)
            self.look()

    def extra(self) -> Extra:
        """Return the service, to be added to a server."""
        name = switch_pb2.DESCRIPTOR.services_by_name["Switch"].full_name
        add: Any = switch_pb2_grpc.add_SwitchServicer_to_server  # generated without types
        return Extra(name, lambda server: add(self, server))

    def _may(
        self, request: switch_pb2.SetImpairmentsRequest | switch_pb2.TraceRequest, context: _Context
    ) -> bool:
        """Refuse a request unless a primary sends it. Return whether it may be executed."""
        sender, election_id = request.primary, None
        if request.HasField("primary"):
            election_id = p4r.Uint128(high=sender.election_id_high, low=sender.election_id_low)
        try:
            self._service.check_operator(sender.role, election_id)
        except Refused as refusal:
            refuse(context, refusal.code.grpc, refusal.message)
            return False
        return True

    async def GetPorts(  # noqa: N802 - gRPC's name
        self, request: switch_pb2.GetPortsRequest, context: _Context
    ) -> switch_pb2.GetPortsResponse:
        """Return counters of the ports and of the program."""
        answer = switch_pb2.GetPortsResponse(time_ns=time.monotonic_ns(), device_id=self._service.device_id)
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
            program, statistics = self._pipeline.program, self._pipeline.native.statistics()
            answer.pipeline.program = program.name
            answer.pipeline.execution = self._ports.execution
            for field in ("received", "emitted", "dropped", "aborted"):
                setattr(answer.pipeline, field, statistics[field])
            for fusion in program.fusions:
                answer.pipeline.scalar.extend(f"{fusion.action}: {line}" for line in fusion.scalar)
        return answer

    async def GetLog(  # noqa: N802 - gRPC's name
        self, request: switch_pb2.GetLogRequest, context: _Context
    ) -> switch_pb2.GetLogResponse:
        """Give the latest messages of the program."""
        self.take_log()
        return switch_pb2.GetLogResponse(messages=self._log)

    async def SetImpairments(  # noqa: N802 - gRPC's name
        self, request: switch_pb2.SetImpairmentsRequest, context: _Context
    ) -> switch_pb2.SetImpairmentsResponse:
        """Change links. A request with a mistake changes no link."""
        if not self._may(request, context):
            return switch_pb2.SetImpairmentsResponse()
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
        if not self._may(request, context):
            return
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
