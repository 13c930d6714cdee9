# SPDX-License-Identifier: Apache-2.0
"""The embedded switch as a process: ports, engine and P4Runtime server, from start to shutdown."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc
from finsy.proto import p4i, p4r
from google.protobuf import text_format

from railweave.switch import pauses
from railweave.switch.errors import InvalidProgram, SwitchError
from railweave.switch.inspection import Inspection
from railweave.switch.options import SwitchOptions, read_file, stop_on_signals
from railweave.switch.p4runtime.errors import Refused, failed_precondition
from railweave.switch.p4runtime.server import listen
from railweave.switch.p4runtime.service import Service
from railweave.switch.pipeline import Pipeline
from railweave.switch.ports import Ports

_Context = grpc.aio.ServicerContext[Any, Any]

_GRACE_S = 0.5  # for RPCs in progress when the switch ends


async def run(options: SwitchOptions, say: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM; SwitchError if that fails.

    `say` prints a line that begins with `ready`, and lines that tell how the program is executed.
    """
    pauses.keep_short()
    stop = stop_on_signals()
    async with serving(options, say):
        say(options.ready_line())
        await stop.wait()
    # RPCs that have ended may have a step to come: asyncio.run would cancel it, of which gRPC complains.
    if rest := asyncio.all_tasks() - {asyncio.current_task()}:
        await asyncio.wait(rest, timeout=_GRACE_S)


@contextlib.asynccontextmanager
async def serving(options: SwitchOptions, say: Callable[[str], None]) -> AsyncIterator[Ports]:
    """Serve a switch while the context lasts; SwitchError if it cannot start."""
    ports = Ports(
        options.interfaces,
        options.super_packet_bytes,
        exact_bytes=options.exact_bytes,
        priority_queues=options.priority_queues,
    )
    for (port, direction), impairment in options.impairments.items():
        ports.set_impairment(port, direction, impairment)
    for port, folder in options.pcap.items():
        ports.capture(port, folder)
    kind = _RefusingService if options.refuses_empty_config else Service
    # The service and the inspection need each other.
    service = kind(options.device_id, lambda pipeline: inspection.use(pipeline), options.cpu_port)  # noqa: PLW0108
    service.config.ports = options.interfaces
    inspection = Inspection(ports, service)
    await load_program(service, inspection.use, options)
    try:
        server = await listen(service, options.grpc, options.tls, [inspection.extra()])
    except OSError as error:
        raise SwitchError(
            f"--grpc {options.grpc}: {error}",
            "a free address of this machine",
            "name another address, or stop its owner",
        ) from None
    ports.start()
    await server.start()
    watching = asyncio.create_task(inspection.keep_watching())
    inspection.say = say  # from now on: the line that says ready comes first
    try:
        yield ports
    finally:
        watching.cancel()
        service.close()
        await server.stop(_GRACE_S)
        ports.stop()
        inspection.take_log()


class _RefusingService(Service):
    """P4Runtime as BMv2 serves it. Without a program the specification asks for an empty answer instead."""

    async def GetForwardingPipelineConfig(  # noqa: N802 - gRPC's name
        self, request: p4r.GetForwardingPipelineConfigRequest, context: _Context
    ) -> p4r.GetForwardingPipelineConfigResponse:
        """Give the committed program back, or refuse with FAILED_PRECONDITION."""
        answer = await super().GetForwardingPipelineConfig(request, context)
        if not answer.HasField("config"):
            raise failed_precondition("No forwarding pipeline config set for this device")
        return answer


async def load_program(service: Service, use: Callable[[Pipeline], None], options: SwitchOptions) -> None:
    """Load the program given on the command line, as a controller would.

    Without P4Info, packets run through it, and P4Runtime has no program until a controller pushes one.
    """
    if options.program is None:
        if options.p4info is not None:
            raise SwitchError("--p4info alone", "--program, too", "add the program, or omit --p4info")
        return
    if options.p4info is None:
        try:
            pipeline = Pipeline.load(read_file(options.program))
        except InvalidProgram as error:
            raise SwitchError(f"{options.program}: {error}") from None
        pipeline.set_cpu_port(options.cpu_port)
        use(pipeline)
        return
    config = p4r.ForwardingPipelineConfig(
        p4info=_parse_p4info(options.p4info), p4_device_config=read_file(options.program)
    )
    request = p4r.SetForwardingPipelineConfigRequest(
        device_id=options.device_id,
        action=p4r.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT,
        config=config,
    )
    try:
        await service.config.set(request)
    except Refused as refusal:
        raise SwitchError(f"{options.program}: {refusal.message}") from None


def _parse_p4info(path: Path) -> p4i.P4Info:
    data = read_file(path)
    p4info = p4i.P4Info()
    try:
        text_format.Parse(data.decode(), p4info)
    except (UnicodeDecodeError, text_format.ParseError) as error:
        try:
            p4info.ParseFromString(data)
        except Exception:
            raise SwitchError(
                f"{path}: {error}", "a P4Info, as text or binary", "compile it with p4c --p4runtime-files"
            ) from None
    return p4info
