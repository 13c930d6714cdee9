# SPDX-License-Identifier: Apache-2.0
"""The packet of ATP, as defined in `headers.p4`."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from railweave.p4src.config import CONFIG

VERSION, GRADIENT, RESULT = CONFIG["ATP_VERSION"], CONFIG["ATP_GRADIENT"], CONFIG["ATP_RESULT"]
RESEND = CONFIG["ATP_RESEND"]

HEADER = struct.Struct("!BBHII")  # version and kind, flags, job, sequence, ranks


@dataclass(frozen=True)
class Packet:
    """A packet; `payload` has int32 in network order, one for each lane."""

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
    def decode(cls, datagram: bytes | memoryview, lanes: int) -> Packet | None:
        """Return the packet in a datagram; None if the datagram is not a packet of ATP."""
        if len(datagram) != HEADER.size + 4 * lanes:
            return None
        first, flags, job, sequence, ranks = HEADER.unpack_from(datagram)
        if first >> 4 != VERSION or first & 15 not in (GRADIENT, RESULT):
            return None
        return cls(first & 15, flags, job, sequence, ranks, bytes(datagram[HEADER.size :]))

    @property
    def numbers(self) -> NDArray[Any]:
        """The numbers of the payload."""
        return np.frombuffer(self.payload, ">i4")
