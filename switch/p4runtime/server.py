# SPDX-License-Identifier: Apache-2.0
"""A service on an address."""

from __future__ import annotations

import grpc
from finsy.proto import p4r_grpc
from railweave.switch.p4runtime.service import Service

_MAX_MESSAGE_BYTES = 64 << 20  # a compiled program of many lanes is some megabytes of JSON
_OPTIONS = [
    ("grpc.so_reuseport", 0),  # a second switch on the same address must fail, not share it
    ("grpc.max_receive_message_length", _MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", _MAX_MESSAGE_BYTES),
    # A controller whose machine died is noticed, and its mastership freed.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
]


def listen(service: Service, address: str) -> grpc.aio.Server:
    """A server, to be started, on an address in gRPC's syntax; OSError if it cannot be had."""
    server = grpc.aio.server(options=_OPTIONS)
    p4r_grpc.add_P4RuntimeServicer_to_server(service, server)
    try:
        port = server.add_insecure_port(address)
    except RuntimeError:
        port = 0
    if port == 0:
        raise OSError(f"cannot listen on {address}: it is in use, or not an address of this machine")
    return server
