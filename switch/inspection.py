# SPDX-License-Identifier: Apache-2.0
"""The service `railweave.v1.Switch`: what a running switch tells beyond P4Runtime."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Any

import grpc
from railweave.switch.p4runtime.server import Extra
from railweave.switch.pipeline import Pipeline
from railweave.switch.ports import Ports
from railweave.v1 import switch_pb2, switch_pb2_grpc


class Inspection(switch_pb2_grpc.SwitchServicer):
    """Answers for one switch; it stands between service and ports to know which program runs."""

    def __init__(self, ports: Ports) -> None:
        """There is no program yet."""
        self._ports = ports
        self._pipeline: Pipeline | None = None

    def use(self, pipeline: Pipeline) -> None:
        """Run packets through this pipeline from now on."""
        self._ports.use(pipeline)
        self._pipeline = pipeline

    def extra(self) -> Extra:
        """The service, to be added to a server."""
        name = switch_pb2.DESCRIPTOR.services_by_name["Switch"].full_name
        add: Any = switch_pb2_grpc.add_SwitchServicer_to_server  # generated without types
        return Extra(name, lambda server: add(self, server))

    async def GetPorts(  # noqa: N802 - gRPC's name
        self,
        request: switch_pb2.GetPortsRequest,
        context: grpc.aio.ServicerContext[switch_pb2.GetPortsRequest, switch_pb2.GetPortsResponse],
    ) -> switch_pb2.GetPortsResponse:
        """Counters of the ports and of the program."""
        answer = switch_pb2.GetPortsResponse(time_ns=time.monotonic_ns())
        for port in self._ports.counters():
            answer.ports.append(switch_pb2.PortStatus(**asdict(port)))
        if self._pipeline is not None:
            statistics = self._pipeline.native.statistics()
            fields = ("received", "emitted", "dropped", "aborted")
            answer.pipeline.program = self._pipeline.program.name
            for field in fields:
                setattr(answer.pipeline, field, statistics[field])
        return answer
