# SPDX-License-Identifier: Apache-2.0
"""A TCP port for a program that a test starts."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def free_port() -> Iterator[int]:
    """Give a port that the kernel gives to nobody else meanwhile, at any address.

    A socket without a listener holds it. Linux lets a second socket listen there if both allow reuse, as
    sockets of `socket.create_server` and of gRPC do.
    """
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("", 0))
        yield int(holder.getsockname()[1])
