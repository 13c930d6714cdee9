# SPDX-License-Identifier: Apache-2.0
"""Jobs from the first rank's join to the last rank's leave: forming, leases, ends."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Coroutine, Iterable
from typing import Any

from railweave.controller import requests, resuming, summing
from railweave.controller.errors import (
    AlreadyJoined,
    Exhausted,
    InvalidRequest,
    Overdue,
    Refused,
    RequestError,
    UnknownLease,
)
from railweave.controller.fabric import Fabric
from railweave.controller.jobs import Forming, Group, Lease
from railweave.controller.moves import Moves
from railweave.controller.placement import Placement
from railweave.controller.quotas import Quotas
from railweave.controller.requests import JoinRequest
from railweave.controller.resuming import Resuming
from railweave.controller.summing import Summing
from railweave.protocol import SECRET_BYTES
from railweave.topologies.model import ALGORITHM
from railweave.v1 import controller_pb2 as pb

LOG = logging.getLogger(__name__)

MAX_JOBS = 4096  # forming and running together


class Groups:
    """All jobs of a controller. One instance belongs to one event loop, and no method blocks the loop."""

    def __init__(self, fabric: Fabric, lease_s: float, quotas: Quotas) -> None:
        """Form groups on `fabric`. A lease that is not renewed for `lease_s` seconds ends its group."""
        self.fabric = fabric
        self.lease_s = lease_s
        self._placement = Placement(fabric, quotas)
        self.moves = Moves(fabric, self._placement, self.running, self.lost, lease_s)
        self._summing = Summing(fabric, quotas, self.running, self._soon)
        self._forming: dict[str, Forming] = {}
        self._running: dict[str, Group] = {}
        self._leases: dict[int, Lease] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._resuming: dict[str, tuple[Group, Resuming]] = {}
        self._resumable = True
        self._closed = False
        fabric.listener = self.moves

    def open(self) -> None:
        """Accept calls from now on. Agents of an earlier controller's jobs may resume within one lease."""
        asyncio.get_running_loop().call_later(self.lease_s, self._close_claims)

    def close(self) -> None:
        """Stop: streams that break from now on do not mean that ranks are lost."""
        self._closed = True

    async def join(self, request: JoinRequest) -> pb.JoinGroupResponse:
        """Wait for the other ranks and return the group. RequestError names the reason for a failure."""
        forming = self._enter(request)
        if not forming.missing:
            self._soon(self._form(forming))
        try:
            async with asyncio.timeout(request.deadline_s):
                group = await asyncio.shield(forming.done)
        except TimeoutError:
            missing = forming.missing
            self._withdraw(forming, request, "gave up after its deadline")
            waited = f"after {request.deadline_s:g} s" if missing else "the switches are too slow"
            do = "start the missing ranks" if missing else "read the controller's log"
            names = f"missing ranks {missing}" if missing else "all ranks are in"
            raise Overdue(
                f"job {request.job!r}, {waited}: {names} of {request.size}",
                f"all {request.size} ranks in time",
                do,
            ) from None
        except asyncio.CancelledError:
            self._withdraw(forming, request, "went away while the group was forming")
            raise
        return self._response(group, request.rank)

    def running(self) -> list[Group]:
        """Return the running jobs."""
        return list(self._running.values())

    def waiting(self, job: str) -> frozenset[int]:
        """Return the ranks of a forming job that wait for the others."""
        forming = self._forming.get(job)
        return frozenset(forming.requests) if forming else frozenset()

    def watching(self, job: str) -> frozenset[int]:
        """Return the ranks of a running job that have a stream."""
        group = self._running.get(job)
        return frozenset(r for r, lease in group.leases.items() if lease.stream) if group else frozenset()

    def _enter(self, request: JoinRequest) -> Forming:
        """Add a rank to the waiting ranks of its job. A disagreement between ranks fails them all."""
        running = self._running.get(request.job)
        if running and not running.closing:
            raise AlreadyJoined(
                f"job {request.job!r} runs already with {running.size} ranks",
                "a job name that no running job has",
                "end that job, or use another name",
            )
        forming = self._forming.get(request.job)
        if forming is None:
            if len(self._forming) + len(self._running) >= MAX_JOBS:
                raise Exhausted(
                    f"{MAX_JOBS} jobs are forming or running",
                    f"fewer than {MAX_JOBS}",
                    "end a job (`railweave why` lists them)",
                )
            forming = self._forming[request.job] = Forming(request)
        if request.rank in forming.requests:
            raise AlreadyJoined(
                f"rank {request.rank} of job {request.job!r} has joined before",
                "each rank once",
                "give each process its own rank, or use another job name",
            )
        try:
            requests.check_protocol(request)
            for other in forming.requests.values():
                requests.agree(other, request)
        except InvalidRequest as error:
            self._fail(forming, error)
            raise
        forming.requests[request.rank] = request
        return forming

    def _withdraw(self, forming: Forming, request: JoinRequest, reason: str) -> None:
        """Remove a rank that stops waiting. Others may still join, unless the group is being placed."""
        if not forming.missing:
            gone = f"job {forming.job!r}: rank {request.rank} {reason}"
            self._fail(forming, Overdue(gone, "all ranks until the group is placed", "start the job again"))
        forming.requests.pop(request.rank, None)
        if not forming.requests and self._forming.get(forming.job) is forming:
            del self._forming[forming.job]

    async def _form(self, forming: Forming) -> None:
        """Place a complete group in the network. A job with refused ina rails runs on its other rails."""
        members = dict(forming.requests)
        group = Group(forming.job, forming.size, members, secret=secrets.token_bytes(SECRET_BYTES))
        try:
            for rail in members[0].rails:
                if rail.kind == "ina":
                    await self._place(group, rail)
                elif rail.kind == "netreduce":
                    await self._summing.place(group, rail, self._placement.hosts(group, rail.name))
                elif rail.kind == ALGORITHM:
                    await self._begin(group, rail)
            if len(group.refusals) == len(members[0].rails):
                reasons = "; ".join(f"{rail}: {reason}" for rail, reason in group.refusals.items())
                raise Exhausted(
                    f"job {group.job!r} has no rail left",
                    "one rail at least",
                    f"add a tcp rail, or correct the causes: {reasons}",
                )
            if not forming.done.done():
                self._start(group)
                forming.done.set_result(group)
                del self._forming[forming.job]
                return
        except RequestError as error:
            self._fail(forming, error)
        except Exception as error:
            LOG.exception("forming job %s", forming.job)
            failed = f"job {forming.job!r}: the controller failed: {error}"
            self._fail(forming, Exhausted(failed, "a group", "read the controller's log"))
        self._close_group(group)

    def _fail(self, forming: Forming, error: RequestError) -> None:
        """Fail all waiting ranks. Later joins form a new group."""
        forming.fail(error)
        if self._forming.get(forming.job) is forming:
            del self._forming[forming.job]

    async def _place(self, group: Group, rail: pb.RailOffer) -> None:
        try:
            await self._placement.place(group, rail)
        except Refused as refused:
            LOG.info("job %s: rail %s refused: %s", group.job, rail.name, refused)
            group.refusals[rail.name] = str(refused)

    async def _begin(self, group: Group, rail: pb.RailOffer, number: int | None = None) -> None:
        """Begin a rail's job in the switches of its algorithm, or go on with one of an earlier controller."""
        of_plane = self.fabric.algorithms[rail.plane]
        nics = {rank: host.nic for rank, host in self._placement.hosts(group, rail.name).items()}
        try:
            number = await of_plane.begin(nics, number)
        except Refused as refused:
            LOG.info("job %s: rail %s refused: %s", group.job, rail.name, refused)
            group.refusals[rail.name] = str(refused)
            return
        lanes, name = of_plane.program.artifact.lanes, of_plane.plane.algorithm
        group.algorithms[rail.name] = pb.AlgorithmJob(
            rail=rail.name, algorithm=name, number=number, lanes=lanes
        )
        if group.closed:
            of_plane.end(number)

    def _start(self, group: Group) -> None:
        self._running[group.job] = group
        for rank in group.requests:
            lease = Lease(secrets.randbits(63) | 1, rank, group)
            group.leases[rank] = self._leases[lease.number] = lease
            self._arm(lease)

    def resume(self, number: int, message: pb.Resume, stream: object, acknowledged: int) -> Lease:
        """Resume a rank of an earlier controller's job under its old lease, after its last event."""
        if not self._resumable or number in self._leases or not 0 < number < 2**63:
            raise _unknown(number)
        if acknowledged >= 2**63:
            raise InvalidRequest(
                f"event {acknowledged}",
                "the last event that the rank has had",
                "use the same release at both ends",
            )
        request, claims, rings = resuming.read(message, self.fabric.topology)
        if request.job in self._forming or (
            request.job in self._running and request.job not in self._resuming
        ):
            raise AlreadyJoined(
                f"job {request.job!r} has been formed again",
                "a lease of the new group",
                "start this rank again",
            )
        group, ranks = self._resuming.get(request.job) or self._begin_to_resume(request)
        ranks.present(request, claims, rings)
        group.rings = ranks.rings
        numbers = {job.rail: job.number for job in message.algorithms}
        lease = Lease(number, request.rank, group, acknowledged)
        group.leases[request.rank] = self._leases[number] = lease
        lease.attach(stream, acknowledged)
        if not ranks.missing:
            del self._resuming[request.job]
            for of_tree in ranks.trees():
                tree, why = self._placement.adopt(group, of_tree)
                group.trees.append(tree)
                if why:
                    self.moves.pause(group, tree, why)
            for rail in request.rails:
                if rail.kind == "netreduce":
                    hosts = self._placement.hosts(group, rail.name)
                    self._soon(self._summing.place(group, rail, hosts))
                elif rail.name in numbers:
                    self._soon(self._begin(group, rail, numbers[rail.name]))
        return lease

    def _begin_to_resume(self, request: JoinRequest) -> tuple[Group, Resuming]:
        ranks = Resuming(request.size)
        group = Group(request.job, request.size, ranks.requests)
        self._running[request.job] = group
        self._resuming[request.job] = group, ranks
        return group, ranks

    def _close_claims(self) -> None:
        """Count ranks of an earlier controller's jobs as lost if they have not resumed by now."""
        if self._closed:
            return
        self._resumable = False
        for group, ranks in list(self._resuming.values()):
            for rank in ranks.missing:
                lost = pb.MemberLost(rank=rank, reason="it has not come back to the restarted controller")
                group.notify(pb.Event(member_lost=lost))
            self._close_group(group)
        self.fabric.close_claims()
        self._soon(self._freed({plane.name for plane in self.fabric.topology.planes}))

    def _arm(self, lease: Lease) -> None:
        """Start the timer of a lease that no stream renews."""
        loop = asyncio.get_running_loop()
        reason = f"no heartbeat for {self.lease_s:g} s"
        lease.timer = loop.call_later(self.lease_s, self.lost, lease, reason)

    def _response(self, group: Group, rank: int) -> pb.JoinGroupResponse:
        members = [pb.Member(rank=r, rails=request.rails) for r, request in sorted(group.requests.items())]
        return pb.JoinGroupResponse(
            lease=group.leases[rank].number,
            lease_s=self.lease_s,
            members=members,
            ina=[self._placement.message(tree, rank) for tree in group.trees if rank in tree.numbers],
            rings=[self._placement.ring(group, rail) for rail in group.rings],
            refusals=[pb.Refusal(rail=rail, reason=reason) for rail, reason in group.refusals.items()],
            secret=group.secret,
            sums=[summing.message(rail, sums) for rail, sums in group.sums.items()],
            algorithms=group.algorithms.values(),
        )

    def lease(self, number: int) -> Lease:
        """Return a rank's lease. UnknownLease if it does not exist."""
        lease = self._leases.get(number)
        if lease is None:
            raise _unknown(number)
        return lease

    def attach(self, number: int, stream: object, acknowledged: int) -> Lease:
        """Let a stream renew a lease from now on. The stream begins after the rank's last received event."""
        lease = self.lease(number)
        lease.attach(stream, acknowledged)
        if not lease.group.closed:
            self.moves.ask_again(lease)
        return lease

    def stream_ended(self, lease: Lease, stream: object, reason: str) -> None:
        """Handle the end of a stream. If it was the lease's present stream, the rank is lost."""
        if lease.stream is not stream:
            return
        lease.stream = None
        if lease.group.closed and not lease.left:  # its last events may have been lost with the stream
            loop = asyncio.get_running_loop()
            lease.timer = loop.call_later(self.lease_s, self._leases.pop, lease.number, None)
        else:
            self.lost(lease, reason)

    def leave(self, number: int) -> None:
        """Handle a rank that leaves. The last rank to leave ends the group."""
        lease = self.lease(number)
        del self._leases[number]
        group = lease.group
        lease.left = True
        lease.close()
        if lease.timer:
            lease.timer.cancel()
        if not group.closed:
            group.notify(pb.Event(member_left=pb.MemberLeft(rank=lease.rank)))
            self.moves.left(lease)
            if all(other.left for other in group.leases.values()):
                self._close_group(group)

    def lost(self, lease: Lease, reason: str) -> None:
        """Handle the loss of a rank: end its group, and notify every other rank at once."""
        group = lease.group
        if lease.stream is None:
            self._leases.pop(lease.number, None)
        if group.closed or lease.left or self._closed:
            return
        LOG.warning("job %s: rank %d is lost: %s", group.job, lease.rank, reason)
        lease.left = True
        group.notify(pb.Event(member_lost=pb.MemberLost(rank=lease.rank, reason=reason)))
        self._close_group(group)

    def _close_group(self, group: Group) -> None:
        """Take a group out of the network. Streams that attach later still get their lease's last events."""
        group.closed = True
        if self._running.get(group.job) is group:
            del self._running[group.job]
            self._resuming.pop(group.job, None)
        self.moves.forget(group)
        for tree in group.trees:
            if tree.placed:
                self.fabric.remove(tree.placed.group)
        self._summing.end(group)
        for request in list(group.requests.values())[:1]:
            for rail in request.rails:
                if job := group.algorithms.get(rail.name):
                    self.fabric.algorithms[rail.plane].end(job.number)
        for lease in group.leases.values():
            lease.close()
        self._soon(self._freed({tree.plane for tree in group.trees}))

    async def _freed(self, planes: Iterable[str]) -> None:
        """Try to place waiting trees once the switches have freed a job's resources."""
        await self.fabric.settled()
        for plane in planes:
            self.moves.plane_changed(plane)

    def _soon(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _unknown(lease: int) -> UnknownLease:
    return UnknownLease(
        f"no lease {lease}: its group has ended, or was never formed here",
        "the lease of a running group",
        "start the job again",
    )
