# SPDX-License-Identifier: Apache-2.0
"""The controller as one asyncio program: switches below, agents above."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import grpc

from railweave.access import IN_CLEAR, Access
from railweave.controller import metrics
from railweave.controller.errors import ControllerError
from railweave.controller.fabric import Fabric
from railweave.controller.groups import Groups
from railweave.controller.malformed import RefuseMalformed
from railweave.controller.quotas import Quotas
from railweave.controller.service import MAX_MESSAGE_BYTES, ControllerService
from railweave.p4src.artifacts import artifact
from railweave.topologies.cluster import TlsFiles
from railweave.topologies.model import Topology
from railweave.v1 import controller_pb2_grpc as pb_grpc

SETTLE_S = 2.0  # at the end, to take ended groups out of the switches


@dataclass(frozen=True)
class PlaneLoss:
    """The probability with which all switches of a plane drop frames at every port; see Fabric.set_loss."""

    plane: str
    probability: float
    direction: str = "both"


@dataclass(frozen=True)
class ControllerOptions:
    """The options of a controller."""

    listen: str = "127.0.0.1:9600"  # HOST:PORT for agents; port 0 takes a free one
    lanes: int | None = None  # 32-bit integers per packet; None: by the MTU of a plane's links
    quotas: Quotas = field(default_factory=Quotas)  # slots and trees of jobs
    suspect_s: float = 30.0  # time for which the controller avoids links that ranks report as dead
    lease_s: float = 10.0  # a rank without heartbeat for this long is lost
    switch_deadline_s: float = 15.0  # longest wait at the start; late switches are avoided until they answer
    metrics: str = ""  # HOST:PORT for Prometheus; empty: none
    losses: Sequence[PlaneLoss] = field(default=())  # from the start; if empty, SetLoss is refused
    access: Access = IN_CLEAR  # of agents and tools
    switch_tls: TlsFiles | None = None  # for connections with the switches; None: in clear


@dataclass(frozen=True)
class RunningController:
    """A running controller, which listens on `port`."""

    groups: Groups
    fabric: Fabric
    port: int
    metrics: str = ""  # address of the Prometheus metrics


@asynccontextmanager
async def serve(topology: Topology, options: ControllerOptions) -> AsyncIterator[RunningController]:
    """Configure the switches, then serve agents until the context ends. ControllerError if that fails."""
    try:
        program = artifact(options.lanes) if options.lanes else None
        fabric = Fabric(topology, program, options.suspect_s, options.switch_tls)
    except ValueError as error:
        raise ControllerError(str(error)) from error
    groups = Groups(fabric, options.lease_s, options.quotas)
    links = asyncio.create_task(fabric.run(), name="switch links")
    server = options.access.server(
        [("grpc.max_receive_message_length", MAX_MESSAGE_BYTES), ("grpc.so_reuseport", 0)],
        RefuseMalformed(),
    )
    try:
        port = _listen(server, options)
        await fabric.configured(options.switch_deadline_s)
        for loss in options.losses:
            await fabric.set_loss(loss.plane, "", 0, loss.direction, loss.probability)
        service = ControllerService(groups, lossy=bool(options.losses))
        pb_grpc.add_ControllerServicer_to_server(service, server)  # type: ignore[no-untyped-call]
        await server.start()
        groups.open()
        async with metrics.serving(groups, options.metrics, options.access) as address:
            yield RunningController(groups, fabric, port, address)
    finally:
        groups.close()
        fabric.health.close()
        await server.stop(grace=None)
        with suppress(TimeoutError):
            await asyncio.wait_for(fabric.settled(), SETTLE_S)
        links.cancel()
        with suppress(asyncio.CancelledError):
            await links


def _listen(server: grpc.aio.Server, options: ControllerOptions) -> int:
    with suppress(RuntimeError):
        if port := options.access.add_port(server, options.listen):
            return port
    raise ControllerError(
        f"cannot listen on {options.listen}",
        "a free port on an address of this host",
        "end the process that has it, or name another by --listen",
    )
