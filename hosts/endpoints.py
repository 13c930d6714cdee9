# SPDX-License-Identifier: Apache-2.0
"""The endpoints of in-network algorithms that carry rails, each in its own thread."""

from __future__ import annotations

import os
import select
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from railweave._native.agent import Agent, EndpointRail, EndpointWork
from railweave._native.collectives import DType, ReduceOp
from railweave.hosts.arrays import NAMES, Array
from railweave.hosts.capabilities import OP_NAMES, OPS
from railweave.hosts.errors import InvalidOption
from railweave.hosts.rails import Members, Opening, offers_of
from railweave.topologies.model import ALGORITHM

if TYPE_CHECKING:
    from railweave.sdk.library import Algorithm
    from railweave.sdk.machines import Job
    from railweave.sdk.sockets import Driver, Place

OF_NAMES = {name: dtype for dtype, name in NAMES.items()}
PROOF = 0x9E3779B1  # 2^32 divided by the golden ratio
END_S = 2.0  # for a thread to end; one whose endpoint hangs ends with the process

Carried = frozenset[tuple[DType, ReduceOp]]
"""The types and operations of the all_reduces that an algorithm can carry."""
Work = tuple[EndpointWork, int, DType, ReduceOp, bytes, int]
"""Kind, incarnation; of a call its type, operation and input; of a restart the position."""


@dataclass(frozen=True)
class Seat:
    """One rank of a job of an algorithm."""

    algorithm: Algorithm
    job: Job
    rank: int
    at: Place
    to: Place

    def opened(self, position: int, also: Sequence[int]) -> Driver:
        """Return a new endpoint on its socket, whose packets count from `position`. See Driver for `also`."""
        from railweave.sdk.sockets import Driver  # noqa: PLC0415 - most jobs have no algorithm

        endpoint = self.algorithm.endpoint(self.job, self.rank)
        if position:
            endpoint.start_at(position)
        return Driver(endpoint, self.at, self.to, also)


class Endpoints:
    """The endpoints of a communicator's algorithm rails."""

    def __init__(self, agent: Agent) -> None:
        """Begin without endpoints."""
        self.ports: dict[str, int] = {}  # UDP, by rail
        self._agent = agent
        self._threads: list[EndpointThread] = []

    def start(self, rails: Sequence[Opening], members: Members, rank: int) -> dict[str, Carried]:
        """Start an endpoint for each algorithm rail. Return what these rails can carry, by rail.

        InvalidOption if an algorithm is not on this host, or if the controller names none.
        """
        found = {}
        for rail in rails:
            if rail.spec.kind != ALGORITHM:
                continue
            from railweave import sdk  # noqa: PLC0415 - loads slowly, and most jobs have no algorithm

            known = members.algorithms.get(rail.spec.name)
            if known is None:
                raise InvalidOption(
                    f"rail {rail.spec.name!r}: the controller names no algorithm",
                    "the algorithm of its plane",
                    "install the same railweave on the controller and all hosts",
                )
            places = [offer.address for offer in offers_of(rail.spec.name, members)]
            try:
                algorithm = sdk.find(known.algorithm)
                job = algorithm.job(known.number, len(places), {}, known.lanes)
                algorithm.endpoint  # noqa: B018 - an endpoint that cannot be imported ends the job at all ranks
            except sdk.AlgorithmError as error:
                raise InvalidOption(f"rail {rail.spec.name!r}: {error}") from error
            following = places[(rank + 1) % len(places)]
            seat = Seat(algorithm, job, rank, (places[rank], job.udp_port), (following, job.udp_port))
            self.ports[rail.spec.name] = job.udp_port
            self._threads.append(EndpointThread(self._agent.endpoint(rail.index), seat, rail.spec.name))
            found[rail.spec.name] = carried(algorithm.manifest.dtypes, algorithm.manifest.operations)
        return found

    def close(self) -> None:
        """End all threads."""
        for thread in self._threads:
            thread.close()


def carried(dtypes: Sequence[str], operations: Sequence[str]) -> Carried:
    """Return the calls that an algorithm can carry. The endpoint's thread makes means of sums of floats."""
    pairs = {(OF_NAMES[dtype], OPS[op]) for dtype in dtypes for op in operations if op in OPS}
    if (DType.FLOAT32, ReduceOp.SUM) in pairs:
        pairs.add((DType.FLOAT32, ReduceOp.AVG))
    return frozenset(pairs)


def proof(rank: int) -> Array:
    """Return a number of each rank. Their sum shows a rank that counts twice, or not, or without its sign."""
    return np.array([(rank + 1) ** 3 * PROOF % 2**32], np.uint32).view(np.int32)


def checksum(numbers: Array) -> Array:
    """Return a weighted sum of the numbers, which wraps. It is linear, as a sum of ranks is.

    Odd weights have inverses modulo 2^32, so one wrong number always changes the checksum.
    """
    found = np.dot(numbers.view(np.uint32), np.arange(1, 2 * numbers.size, 2, dtype=np.uint32))
    return np.array([found], np.uint32).view(np.int32)


class EndpointThread:
    """Carries the slices of a rail by an endpoint, until `close`.

    An error in the endpoint's code fails the rail. A restart of the rail makes a new endpoint.
    """

    def __init__(self, rail: EndpointRail, seat: Seat, name: str) -> None:
        """Start the thread."""
        self._rail = rail
        self._seat = seat
        self._stop = os.eventfd(0)
        self._stopped = False
        self._driver: Driver | None = None
        self._running: int | None = None  # the incarnation; none while the rail is halted or has failed
        self._inbox: deque[Work] = deque()
        self._resends = 0  # of the endpoint, as counted last
        self._thread = threading.Thread(target=self._run, name=f"railweave {name}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread and its endpoint."""
        self._stopped = True
        os.eventfd_write(self._stop, 1)
        if self._thread is threading.current_thread():  # it has collected the communicator as garbage
            return
        self._thread.join(END_S)
        if not self._thread.is_alive():
            os.close(self._stop)

    def _run(self) -> None:
        events = select.poll()  # unlike select.select, it takes all descriptors
        for descriptor in (self._stop, self._rail.work_descriptor()):
            events.register(descriptor, select.POLLIN)
        self._guarded(0, lambda: self._restart(0, 0))
        while not self._stopped:
            if self._inbox:
                work = self._inbox.popleft()
                self._guarded(work[1], lambda: self._handle(work))  # noqa: B023 - called at once
            else:
                events.poll()
                self._inbox.extend(self._rail.take())
        if self._driver is not None:
            self._driver.close()

    def _guarded(self, incarnation: int, step: Callable[[], None]) -> None:
        try:
            step()
        except BaseException as error:  # SystemExit must not end the thread either
            self._running = None
            reason = f"its endpoint failed: {type(error).__name__}: {error}"
            self._rail.fail(incarnation, reason.encode(errors="replace").decode())

    def _handle(self, work: Work) -> None:
        kind, incarnation, *_, position = work
        if kind is EndpointWork.HALT:
            self._running = None
        elif kind is EndpointWork.RESTART:
            self._restart(incarnation, position)
        elif self._running == incarnation:
            self._carry(work)

    def _restart(self, incarnation: int, position: int) -> None:
        if self._driver is not None:
            self._driver.close()
        self._driver, self._resends = None, 0
        self._driver = self._seat.opened(position, (self._stop, self._rail.work_descriptor()))
        self._running = incarnation

    def _carry(self, work: Work) -> None:
        """Make a call, unless the rail is halted meanwhile."""
        _, incarnation, dtype, op, data, _ = work
        driver = self._driver
        assert driver is not None  # noqa: S101 - it runs
        given = np.frombuffer(data, NAMES[dtype])
        if checked := (dtype, op) == (DType.INT32, ReduceOp.SUM):
            given = np.concatenate([given, checksum(given), proof(self._seat.rank)])
        driver.endpoint.begin(given, "sum" if op is ReduceOp.AVG else OP_NAMES[op])
        while not driver.endpoint.done:
            if not self._rail.reserve(incarnation, driver.endpoint.position):
                return
            if driver.turn():
                self._inbox.extend(self._rail.take())
            self._count(driver)
            if any(kind is not EndpointWork.CALL for kind, *_ in self._inbox):
                return
        result = driver.endpoint.result
        if result.shape != given.shape or result.dtype != given.dtype:
            raise ValueError(
                f"a result of {result.shape} {result.dtype}: expected {given.shape} {given.dtype}"
            )
        if checked:
            given, result, found = given[:-2], result[:-2], result[-2:]
            proofs = np.sum([proof(rank) for rank in range(self._seat.job.ranks)], axis=0, dtype=np.int32)
            if not np.array_equal(found, np.concatenate([checksum(result), proofs])):
                raise ValueError("a wrong sum: its checksum or the sum of the ranks' own numbers is wrong")
        if op is ReduceOp.AVG:
            result = (result / self._seat.job.ranks).astype(result.dtype)
        self._rail.finish(incarnation, np.ascontiguousarray(result))

    def _count(self, driver: Driver) -> None:
        """Report the datagrams since the last time."""
        traffic, resends = driver.traffic(), driver.endpoint.resends - self._resends
        self._resends = driver.endpoint.resends
        resent = resends, traffic.sent_bytes * resends // max(traffic.sent, resends, 1)
        sent = traffic.sent, traffic.sent_bytes
        self._rail.count(*sent, *resent, traffic.received, traffic.received_bytes)
