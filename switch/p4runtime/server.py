# SPDX-License-Identifier: Apache-2.0
"""Services on an address: with or without TLS, with reflection and health, within limits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import grpc
from finsy.proto import p4r
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from railweave.switch.options import Tls
from railweave.switch.p4runtime.requests import MAX_PROGRAM_BYTES, Requests
from railweave.switch.p4runtime.service import Service

_MAX_RPCS = 512  # at once, streams included; gRPC holds one message of each
_OPTIONS = [
    ("grpc.so_reuseport", 0),  # a second switch on the same address must fail, not share it
    ("grpc.max_receive_message_length", MAX_PROGRAM_BYTES),
    ("grpc.max_send_message_length", 2 * MAX_PROGRAM_BYTES),
    ("grpc.max_concurrent_streams", 256),  # of one connection
    ("grpc.max_metadata_size", 1 << 20),
    # A controller whose machine died is noticed, and its mastership freed.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
]
_P4RUNTIME = p4r.DESCRIPTOR.services_by_name["P4Runtime"].full_name


@dataclass(frozen=True)
class Extra:
    """A further service on the same address."""

    name: str  # in full, for reflection
    add: Callable[[grpc.aio.Server], None]


async def listen(
    service: Service, address: str, tls: Tls | None = None, extras: Sequence[Extra] = ()
) -> grpc.aio.Server:
    """Return a server, to be started, on an address in gRPC's syntax; OSError if the address is not free.

    SwitchError names a TLS file that cannot be read.
    """
    server = grpc.aio.server(options=_OPTIONS, maximum_concurrent_rpcs=_MAX_RPCS)
    server.add_generic_rpc_handlers((Requests(service).handler(),))
    for extra in extras:
        extra.add(server)
    names = [_P4RUNTIME, *(extra.name for extra in extras)]
    statuses = health.aio.HealthServicer()
    for name in ("", *names):
        await statuses.set(name, health_pb2.HealthCheckResponse.SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(statuses, server)
    reflection.enable_server_reflection((*names, health.SERVICE_NAME, reflection.SERVICE_NAME), server)
    _bind(server, address, tls)
    return server


def _bind(server: grpc.aio.Server, address: str, tls: Tls | None) -> None:
    causes = "it is in use, or not an address of this machine"
    credentials = None
    if tls is not None:
        key, certificate, ca = tls.read()
        credentials = grpc.ssl_server_credentials(
            [(key, certificate)], ca, require_client_auth=ca is not None
        )
        causes += ", or the TLS certificate and key do not belong together"
    try:
        bound = (
            server.add_secure_port(address, credentials) if credentials else server.add_insecure_port(address)
        )
    except RuntimeError:
        bound = 0
    if bound == 0:
        raise OSError(f"cannot listen on {address}: {causes}")
