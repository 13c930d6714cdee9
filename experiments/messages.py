# SPDX-License-Identifier: Apache-2.0
"""Messages of workers to the lab: one JSON object per line on stdout, errors in one line on stderr."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import railweave
from railweave.hosts.errors import RailweaveError


@dataclass(frozen=True)
class RailCounts:
    """The counts of a rail on one rank since the rank joined. They can be added."""

    payload_bytes: int = 0  # tensor bytes of the slices that the rail has reduced
    bytes_sent: int = 0  # on the wire, Ethernet headers included
    bytes_received: int = 0
    retransmissions: int = 0
    slices: int = 0
    busy_s: float = 0.0
    failures: int = 0  # how often the ranks have excluded the rail
    multicast_bytes: int = 0  # tensor bytes that were sent once to all ranks
    fetched_bytes: int = 0  # multicast tensor bytes that were received again from a peer
    rings: int = 0  # how often a part of a tensor has gone round a ring of racks and single ranks
    ring_messages: int = 0  # messages sent in these rings
    # The classes of bytes_sent, as in `railweave.hosts.reports.SentBytes`.
    sent_payload: int = 0
    sent_headers: int = 0
    sent_resends: int = 0
    sent_recovery: int = 0
    sent_heartbeats: int = 0
    sent_control: int = 0

    def __add__(self, other: RailCounts) -> RailCounts:
        """Return the sum of both."""
        return RailCounts(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    @classmethod
    def of(cls, report: Mapping[str, Any]) -> RailCounts:
        """Return the counts in the values of a `RailReport`."""
        values = {**report, **{f"sent_{name}": count for name, count in report["sent"].items()}}
        return cls(**{each.name: values[each.name] for each in fields(cls)})


def rail_counts(comm: railweave.Communicator) -> dict[str, RailCounts]:
    """Return the counts of every rail by its name."""
    return {rail.name: RailCounts.of(asdict(rail)) for rail in comm.stats().rails}


def slices(comm: railweave.Communicator) -> list[dict[str, Any]]:
    """Return the slices completed since the last call: rail, start and end (CLOCK_MONOTONIC, s), bytes.

    `survey` marks the slices of surveys, in which ranks agree on the rails' costs. `repair` marks the slices
    that a TCP connection carried in place of a failed rail.
    """
    return [
        {
            "rail": record.rail,
            "start": record.start_s,
            "end": record.end_s,
            "bytes": record.bytes,
            "survey": record.survey,
            "repair": record.repair,
        }
        for record in comm.drain_records()
    ]


def emit(event: str, **values: Any) -> None:
    """Send a message to the lab. Threads may do so at the same time."""
    sys.stdout.write(json.dumps({"event": event, **values}) + "\n")
    sys.stdout.flush()


def read(line: str) -> dict[str, Any] | None:
    """Return a worker's message, or None if the line is something else (a library's output)."""
    if not line.startswith("{"):
        return None
    try:
        message = json.loads(line)
    except ValueError:
        return None
    return message if isinstance(message, dict) and "event" in message else None


def run_worker(work: Callable[[], None]) -> int:
    """Run a worker to completion, and return the exit status. An error for users becomes one line.

    Warnings of libraries also go to stderr. Without this setting, gRPC logs nothing.
    """
    logging.basicConfig(format="%(name)s: %(message)s", level=logging.WARNING)
    try:
        work()
    except RailweaveError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        return 1
    return 0
