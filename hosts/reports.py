# SPDX-License-Identifier: Apache-2.0
"""What a communicator tells about itself."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RailReport:
    """A rail's counts since it was opened. Bytes on the wire include Ethernet headers."""

    name: str
    kind: str
    share: float  # of large tensors
    slices: int
    payload_bytes: int  # of the tensors, as far as this rail has reduced them
    bytes_sent: int
    bytes_received: int
    packets_sent: int
    packets_received: int
    retransmissions: int
    duplicates: int
    malformed: int  # packets and connections refused
    busy_s: float  # with a slice in progress


@dataclass(frozen=True)
class Stats:
    """Counts of all rails."""

    rails: tuple[RailReport, ...]


@dataclass(frozen=True)
class Record:
    """One slice of one call as it went; times in seconds of time.monotonic()."""

    op_index: int
    rail: str
    start_s: float
    end_s: float
    bytes: int
