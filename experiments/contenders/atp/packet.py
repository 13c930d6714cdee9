# SPDX-License-Identifier: Apache-2.0
"""The packet of ATP, as defined in `p4src/atp/headers.p4`, and its constants."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from railweave.p4src.config import CONFIG

LANES = CONFIG["LANES"]
UDP_PORT, PORTS = CONFIG["ATP_UDP_PORT"], CONFIG["ATP_PORTS"]
VERSION, GRADIENT, RESULT = CONFIG["ATP_VERSION"], CONFIG["ATP_GRADIENT"], CONFIG["ATP_RESULT"]
RESEND = CONFIG["ATP_RESEND"]
MAX_JOBS = PORTS // 2  # a port for a job's worker on a host, and one for its parameter server
SCALE = 10**6  # fixed-point units per 1.0
MOST = 2**31 - 1

HEADER = struct.Struct("!BBHII")  # version and kind, flags, job, sequence, ranks
assert HEADER.size == CONFIG["ATP_HEADER_BYTES"]  # noqa: S101


@dataclass(frozen=True)
class Packet:
    """A packet; `payload` is LANES int32 in network order."""

    kind: int
    flags: int
    job: int
    sequence: int
    ranks: int
    payload: bytes

    def encode(self) -> bytes:
        """Return the datagram."""
        head = HEADER.pack(VERSION << 4 | self.kind, self.flags, self.job, self.sequence, self.ranks)
        return head + self.payload

    @classmethod
    def decode(cls, datagram: bytes, lanes: int = LANES) -> Packet | None:
        """Return the packet in a datagram; None if the datagram is not a packet of ATP."""
        if len(datagram) != HEADER.size + 4 * lanes:
            return None
        first, flags, job, sequence, ranks = HEADER.unpack_from(datagram)
        if first >> 4 != VERSION or first & 15 not in (GRADIENT, RESULT):
            return None
        return cls(first & 15, flags, job, sequence, ranks, datagram[HEADER.size :])

    @property
    def numbers(self) -> NDArray[Any]:
        """The numbers of the payload."""
        return np.frombuffer(self.payload, ">i4")


def worker_port(job: int) -> int:
    """The UDP port of a job's workers."""
    return UDP_PORT + job


def server_port(job: int) -> int:
    """The UDP port of a job's parameter server."""
    return UDP_PORT + MAX_JOBS + job
