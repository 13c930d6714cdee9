# SPDX-License-Identifier: Apache-2.0
"""The interface of an algorithm's Python files: machines without input and output.

A machine reads no clock, opens no socket and draws no random numbers. Times are in seconds and given. So the
same code runs in virtual time (`railweave algorithm check`) and on real sockets.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Datagrams = Sequence[bytes] | NDArray[np.uint8]
"""Datagrams to send: bytes, or the rows of a contiguous matrix."""


@dataclass(frozen=True)
class Job:
    """A job of an algorithm on one plane. Rank r is on the plane's NIC r."""

    number: int  # among the algorithm's jobs on these switches, from 0
    ranks: int
    udp_port: int  # of the ranks
    lanes: int  # numbers per packet
    options: Mapping[str, Any] = field(default_factory=dict)  # of the manifest's `options`


class Endpoint(ABC):
    """One rank of a job. `endpoint.py` has a class of this name that derives from it."""

    resends = 0
    """Number of datagrams that were sent again."""

    def __init__(self, job: Job, rank: int) -> None:
        """Take the job. No call has begun."""
        self.job = job
        self.rank = rank

    @abstractmethod
    def begin(self, given: Array, op: str) -> None:
        """Begin a call with this rank's numbers, a vector that does not change until the call is done.

        Raises ValueError if the algorithm cannot reduce these numbers; the error names the reason.
        """

    @abstractmethod
    def transmit(self, now: float, budget: int) -> Datagrams:
        """Return at most `budget` datagrams to send now.

        They go to the job's server if the algorithm has one, else to the next rank, so that a switch on the
        path can take them.
        """

    @abstractmethod
    def receive(self, datagrams: Sequence[memoryview], now: float) -> None:
        """Take datagrams that have arrived at this rank's port. They may be forged, late or repeated."""

    @abstractmethod
    def deadline(self) -> float:
        """Return when `transmit` has datagrams to send again; infinity if it has none."""

    @property
    @abstractmethod
    def done(self) -> bool:
        """Whether the call is complete, or none has begun."""

    @property
    @abstractmethod
    def result(self) -> Array:
        """The result of the call that is complete."""

    @property
    def position(self) -> int:
        """A number below 2^32 that grows with calls, for `start_at`. 0 if the endpoint does not have it."""
        return 0

    def start_at(self, position: int) -> None:
        """Begin, right after the construction, behind all packets of earlier endpoints of this job.

        A rail calls it after a failure. `position` is the greatest `position` that a rank had while it sent.
        """
        raise NotImplementedError("a rail that failed needs the methods position and start_at")

    @staticmethod
    def expected(given: Sequence[Array], op: str) -> Array:
        """Return the right result for the vectors of all ranks. Sums of int32 wrap."""
        wide = np.sum(np.stack(given), axis=0, dtype=np.float64 if given[0].dtype.kind == "f" else np.int64)
        result: Array = wide.astype(given[0].dtype)
        return result

    @staticmethod
    def error_bound(given: Sequence[Array]) -> float:
        """Return the greatest error of a float32 result's element, beyond its rounding.

        `given` are the vectors of all ranks. Larger numbers must not have a smaller bound.
        """
        return 0.0


class Server(ABC):
    """The parameter server of a job, on the host of rank 0. `server.py` has a class of this name, if any."""

    def __init__(self, job: Job) -> None:
        """Take the job."""
        self.job = job

    @abstractmethod
    def receive(self, datagram: bytes) -> tuple[bytes, int] | None:
        """Take a datagram. Return an answer and its ranks, a bit for each; None if there is no answer."""
