# SPDX-License-Identifier: Apache-2.0
"""The embedded switch as a process: ports, engine and P4Runtime server, from start to a clean end."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import grpc
from finsy.proto import p4i, p4r, p4r_grpc
from google.protobuf import text_format
from railweave.switch.options import SwitchError, SwitchOptions, stop_on_signals
from railweave.switch.p4runtime.errors import Refused
from railweave.switch.p4runtime.service import Service
from railweave.switch.ports import PortError, Ports

_MAX_MESSAGE_BYTES = 64 << 20  # a compiled program of many lanes is some megabytes of JSON
_GRACE_S = 0.5  # for RPCs in progress when the switch ends
_SERVER_OPTIONS = [
    ("grpc.so_reuseport", 0),  # a second switch on the same address must fail, not share it
    ("grpc.max_receive_message_length", _MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", _MAX_MESSAGE_BYTES),
    # A controller whose machine died is noticed, and its mastership freed.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
]


async def run(options: SwitchOptions, ready: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM, calling `ready` once with a line to print; SwitchError if that fails."""
    stop = stop_on_signals()
    async with serving(options):
        ready(options.ready_line())
        await stop.wait()


@contextlib.asynccontextmanager
async def serving(options: SwitchOptions) -> AsyncIterator[Ports]:
    """A running switch; SwitchError if it cannot start."""
    try:
        ports = Ports(options.interfaces, options.super_packet_bytes)
    except PortError as error:
        raise SwitchError(str(error)) from None
    service = Service(options.device_id, ports.use)
    await _load_program(service, options)
    server = grpc.aio.server(options=_SERVER_OPTIONS)
    p4r_grpc.add_P4RuntimeServicer_to_server(service, server)
    try:
        bound = server.add_insecure_port(options.grpc)
    except RuntimeError:
        bound = 0
    if bound == 0:
        raise SwitchError(
            f"cannot listen on {options.grpc}: in use, or not an address of this machine; see --grpc"
        )
    ports.start()
    await server.start()
    try:
        yield ports
    finally:
        await server.stop(_GRACE_S)
        ports.stop()


async def _load_program(service: Service, options: SwitchOptions) -> None:
    """Commit the program given on the command line, as a controller would."""
    if options.program is None and options.p4info is None:
        return
    if options.program is None or options.p4info is None:
        raise SwitchError("--program and --p4info belong together: p4c writes both")
    config = p4r.ForwardingPipelineConfig(
        p4info=_parse_p4info(options.p4info), p4_device_config=_read(options.program)
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
    data = _read(path)
    p4info = p4i.P4Info()
    try:
        text_format.Parse(data.decode(), p4info)
    except (UnicodeDecodeError, text_format.ParseError) as error:
        try:
            p4info.ParseFromString(data)
        except Exception:
            raise SwitchError(f"{path} is not a P4Info, neither text nor binary: {error}") from None
    return p4info


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise SwitchError(f"cannot read {path}: {error.strerror}") from None
