# SPDX-License-Identifier: Apache-2.0
"""The controller's client in a rank: it joins the job, keeps the lease, and receives events.

The client is synchronous, with daemon threads and without an event loop. Importing gRPC takes longer than the
rest of railweave, so import this module only when a job is joined.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any

import grpc
from google.protobuf.message import Message

from railweave._native.agent import Stall
from railweave.access import IN_CLEAR, Access, refusal
from railweave.hosts.errors import (
    ControllerUnreachable,
    GroupRefused,
    InvalidOption,
    JoinTimeout,
    RailweaveError,
)
from railweave.hosts.events import (
    AlgorithmJob,
    Decision,
    Event,
    GroupMoved,
    GroupPaused,
    InaGroup,
    LeaseLost,
    MemberLeft,
    MemberLost,
    PlaneDown,
    PlaneUp,
    RailOffer,
    Ring,
    Sums,
)
from railweave.protocol import PROTOCOL, SECRET_BYTES
from railweave.v1 import controller_pb2 as pb
from railweave.v1 import controller_pb2_grpc as pb_grpc

HEARTBEATS_PER_LEASE = 4
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 1.0  # between attempts to reach a controller that is gone
DECISION_BYTES = 128 * 1024  # limit of decisions in a heartbeat; controllers refuse messages of twice this
LEAVE_S = 2.0  # timeout of LeaveGroup
REPORT_S = 10.0  # timeout of a report
LAST_MESSAGES_S = 0.5  # for the last messages of a stream after its status has arrived
UNEXPLAINED_S = 1.0  # without a connection, until a TLS handshake is tried to find the cause
ANSWER_S = 5.0  # added to the deadline, which the controller itself keeps
CHANNEL_OPTIONS = (
    ("grpc.enable_http_proxy", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
)
EVENTS: Mapping[str, type[MemberLost | MemberLeft | PlaneDown | PlaneUp | GroupPaused]] = {
    "member_lost": MemberLost,
    "member_left": MemberLeft,
    "plane_down": PlaneDown,
    "plane_up": PlaneUp,
    "group_paused": GroupPaused,
}
RETRIED = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)


def join(
    controller: str,
    *,
    job: str,
    rank: int,
    size: int,
    rails: Sequence[RailOffer],
    deadline_s: float = 60.0,
    on_event: Callable[[Event], None] = lambda event: None,
    decisions: Callable[[], Sequence[Decision]] = lambda: (),
    access: Access = IN_CLEAR,
) -> Membership:
    """Join a job and wait until all of its `size` ranks have joined.

    `controller` is HOST:PORT, and `access` has its credentials. The watching thread calls `on_event`, which
    must not block for long. Another thread calls `decisions` before every heartbeat; `railweave why` shows
    the result. Raises InvalidOption (the ranks disagree, or an option is invalid), GroupRefused, JoinTimeout
    (names the missing ranks), ControllerUnreachable.
    """
    try:
        offers = [pb.RailOffer(**asdict(rail)) for rail in rails]
        request = pb.JoinGroupRequest(job=job, rank=rank, size=size, rails=offers, protocol=PROTOCOL)
    except (ValueError, TypeError) as error:
        raise InvalidOption(
            f"job {job!r}, rank {rank!r} of {size!r}, rails {rails!r} ({error})",
            "a job name, two whole numbers and rails",
            "correct the arguments of railweave.init",
        ) from error
    channel = access.channel(controller, CHANNEL_OPTIONS)
    try:
        response = _join(channel, controller, access, request, deadline_s)
        if len(response.secret) != SECRET_BYTES:
            raise RailweaveError(
                f"the controller at {controller} sent a secret of {len(response.secret)} bytes",
                f"{SECRET_BYTES} bytes",
                "install the same railweave on the controller and all hosts",
            )
    except BaseException:
        channel.close()
        raise
    return Membership(channel, request, response, on_event, decisions)


def _join(
    channel: grpc.Channel, controller: str, access: Access, request: pb.JoinGroupRequest, deadline_s: float
) -> pb.JoinGroupResponse:
    """Call JoinGroup until the deadline, again if the controller goes away before it answers."""
    end = time.monotonic() + deadline_s
    stub = pb_grpc.ControllerStub(channel)  # type: ignore[no-untyped-call]
    while True:
        try:
            left_s = max(end - time.monotonic(), 0)
            grpc.channel_ready_future(channel).result(timeout=min(left_s, UNEXPLAINED_S))
        except grpc.FutureTimeoutError:
            if why := refusal(access.tls, controller):
                raise ControllerUnreachable(
                    why, do="correct the certificate, the address or the clock"
                ) from None
            if left_s > UNEXPLAINED_S:
                continue
            raise ControllerUnreachable(
                f"no answer from {controller} within {deadline_s:g} s",
                f"a controller there, {'with' if access.tls else 'without'} TLS",
                "start `railweave controller`, or correct the address",
            ) from None
        request.deadline_s = max(end - time.monotonic(), 0.001)
        try:
            response: pb.JoinGroupResponse = stub.JoinGroup(request, timeout=request.deadline_s + ANSWER_S)
            return response
        except grpc.RpcError as error:
            if error.code() not in RETRIED:
                raise _translated(error, controller) from None


def _translated(error: grpc.RpcError, controller: str) -> RailweaveError:
    text = error.details() or error.code().name
    match error.code():
        case grpc.StatusCode.INVALID_ARGUMENT:
            return InvalidOption(text)
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            return JoinTimeout(text)
        case grpc.StatusCode.ALREADY_EXISTS | grpc.StatusCode.RESOURCE_EXHAUSTED:
            return GroupRefused(text)
        case grpc.StatusCode.UNAUTHENTICATED:
            return RailweaveError(f"controller at {controller}: {text}")
        case _:
            return RailweaveError(
                f"controller at {controller}: {error.code().name}: {text}",
                "an answer to JoinGroup",
                "read the controller's log",
            )


class Membership:
    """A rank's place in a running job. `leave` or the end of its context ends it."""

    def __init__(
        self,
        channel: grpc.Channel,
        request: pb.JoinGroupRequest,
        response: pb.JoinGroupResponse,
        on_event: Callable[[Event], None],
        decisions: Callable[[], Sequence[Decision]],
    ) -> None:
        """Start the watching thread. `join` makes memberships."""
        self.rank = request.rank
        self.size = request.size
        self.members: Mapping[int, tuple[RailOffer, ...]] = {
            member.rank: tuple(_offer(rail) for rail in member.rails) for member in response.members
        }
        self.secret = response.secret
        self.refusals: Mapping[str, str] = {refusal.rail: refusal.reason for refusal in response.refusals}
        self.rings: Mapping[str, Ring] = {ring.rail: _ring(ring) for ring in response.rings}
        self.sums: Mapping[str, Sums] = {sums.rail: Sums(**_fields(sums)) for sums in response.sums}
        self.algorithms: Mapping[str, AlgorithmJob] = {
            job.rail: AlgorithmJob(**_fields(job)) for job in response.algorithms
        }
        self._request = request
        self._algorithms = response.algorithms
        self._rings = response.rings
        self._lock = threading.Lock()  # guards _places and _paused: events change them, heartbeats read them
        self._places = {(place.rail, place.tree): place for place in response.ina}
        self._paused: set[int] = set()  # groups
        self._channel = channel
        self._stub = pb_grpc.ControllerStub(channel)  # type: ignore[no-untyped-call]
        self._lease = response.lease
        self._acknowledged = 0  # sequence number of the last handled event
        self._pause_s = response.lease_s / HEARTBEATS_PER_LEASE
        self._on_event = on_event
        self._decisions = decisions
        self._reports: set[grpc.Future[Any]] = set()  # under way
        self._left = threading.Event()
        self._thread = threading.Thread(
            target=self._watch, name=f"railweave watch {request.job}", daemon=True
        )
        self._thread.start()

    def __enter__(self) -> Membership:
        """Use as a context manager."""
        return self

    def __exit__(self, *_: object) -> None:
        """Leave."""
        self.leave()

    @property
    def groups(self) -> Mapping[str, tuple[InaGroup, ...]]:
        """The present places of this rank's ina rails: by rail, one per tree, in order of `tree`."""
        with self._lock:
            places = sorted(self._places.items())
        return {
            rail: tuple(InaGroup(**_fields(place)) for (of, _), place in places if of == rail)
            for rail in dict.fromkeys(rail for (rail, _), _ in places)
        }

    def report_position(self, group: int, position: int) -> None:
        """Answer GroupPaused: `position` is the first chunk without a result since the tree was formed.

        The method does not wait for the controller. A controller that was away asks again when it is back.
        """
        request = pb.ReportPositionRequest(lease=self._lease, group=group, position=position)
        self._keep(self._stub.ReportPosition.future(request, timeout=REPORT_S, wait_for_ready=True))

    def report_stall(self, stall: Stall) -> None:
        """Report why a group delivers no results, without waiting for the controller."""
        request = pb.ReportStallRequest(
            lease=self._lease,
            group=stall.group,
            first_switch_ok=stall.first_switch_ok,
            root_ok=stall.root_ok,
            spoilt=stall.spoilt,
        )
        self._keep(self._stub.ReportStall.future(request, timeout=REPORT_S, wait_for_ready=True))

    def _keep(self, report: grpc.Future[Any]) -> None:
        """Hold a report until it is answered. gRPC cancels calls without a reference."""
        self._reports.add(report)
        report.add_done_callback(self._reports.discard)

    def leave(self) -> None:
        """Leave the job, waiting at most LEAVE_S for the controller. It is safe to call this again."""
        if self._left.is_set():
            return
        self._left.set()
        with suppress(grpc.RpcError, ValueError):  # the group may have ended, the controller may be gone
            self._stub.LeaveGroup(pb.LeaveGroupRequest(lease=self._lease), timeout=LEAVE_S)
        self._channel.close()
        if threading.current_thread() is not self._thread:
            self._thread.join(LEAVE_S)

    def _watch(self) -> None:
        """Hold a stream until the group ends. After a break, present the lease again until it is answered."""
        pause = FIRST_PAUSE_S
        while not self._left.is_set():
            try:
                for message in self._stream(broken := threading.Event()):
                    pause = FIRST_PAUSE_S
                    if message.sequence > self._acknowledged:  # else an earlier stream brought it already
                        self._remember(message)
                        self._on_event(_event(message))
                        self._acknowledged = message.sequence
                return
            except grpc.RpcError as error:
                if self._left.is_set():
                    return
                if error.code() not in RETRIED:
                    self._on_event(LeaseLost(error.details() or error.code().name))
                    return
            except ValueError:
                return  # the channel was closed by `leave`
            finally:
                broken.set()
            self._left.wait(pause)
            pause = min(2 * pause, LONGEST_PAUSE_S)

    def _stream(self, broken: threading.Event) -> Iterator[pb.Event]:
        """Yield the messages of one stream. Raises grpc.RpcError if the stream breaks.

        gRPC's iterator sometimes blocks for ever if the call began while the controller stopped: the
        status arrives, but the metadata do not. So a separate thread uses the iterator, and may be abandoned.
        """
        call = self._stub.Watch(self._heartbeats(broken))
        inbox: queue.SimpleQueue[pb.Event | None] = queue.SimpleQueue()  # None: the stream has ended

        def read() -> None:
            with suppress(grpc.RpcError):
                for message in call:
                    inbox.put(message)
            inbox.put(None)

        def end() -> None:
            overdue = threading.Timer(LAST_MESSAGES_S, inbox.put, [None])
            overdue.daemon = True
            overdue.start()

        threading.Thread(target=read, name=f"railweave read {self._request.job}", daemon=True).start()
        if not call.add_callback(end):
            end()
        yield from iter(inbox.get, None)
        if call.code() is not grpc.StatusCode.OK:
            raise call

    def _remember(self, message: pb.Event) -> None:
        """Remember the state that a restarted controller will need."""
        with self._lock:
            if message.HasField("group_paused"):
                self._paused.add(message.group_paused.group)
            elif message.HasField("group_moved"):
                moved = message.group_moved
                self._paused.discard(moved.group)
                self._places[moved.place.rail, moved.place.tree] = moved.place

    def _resume(self) -> pb.Resume:
        request = self._request
        with self._lock:
            return pb.Resume(
                job=request.job,
                rank=request.rank,
                size=request.size,
                rails=request.rails,
                ina=self._places.values(),
                paused=sorted(self._paused),
                rings=self._rings,
                algorithms=self._algorithms,
            )

    def _heartbeats(self, broken: threading.Event) -> Iterator[pb.Heartbeat]:
        """Yield the messages that the stream sends. gRPC's reading thread ends when `broken` is set."""
        reported: Sequence[Decision] = ()
        yield pb.Heartbeat(lease=self._lease, resume=self._resume(), acknowledged=self._acknowledged)
        while not (broken.wait(self._pause_s) or self._left.is_set()):
            decisions = self._decisions()
            changed = [] if decisions == reported else _that_fit(decisions)
            reported = decisions
            yield pb.Heartbeat(lease=self._lease, decisions=changed, acknowledged=self._acknowledged)


def _that_fit(decisions: Sequence[Decision]) -> list[pb.Decision]:
    """Return the first decisions that fit: standing ones first, then the oldest classes of calls.

    A program with thousands of classes would send heartbeats that the controller refuses, and would be lost.
    """
    reported: list[pb.Decision] = []
    left = DECISION_BYTES
    for decision in decisions:
        message = pb.Decision(**asdict(decision))
        left -= message.ByteSize()
        if left < 0:
            break
        reported.append(message)
    return reported


def _fields(message: Message) -> dict[str, Any]:
    """Return the fields of a message by name. The corresponding dataclass has the same names."""
    return {field.name: getattr(message, field.name) for field in message.DESCRIPTOR.fields}


def _offer(rail: pb.RailOffer) -> RailOffer:
    lists = {"queue_pairs": tuple(rail.queue_pairs), "sum_queue_pairs": tuple(rail.sum_queue_pairs)}
    return RailOffer(**{**_fields(rail), **lists})


def _ring(ring: pb.Ring) -> Ring:
    members = tuple(tuple(member.ranks) for member in ring.members)
    return Ring(ring.rail, ring.lanes, members, tuple(member.reason for member in ring.members))


def _event(message: pb.Event) -> Event:
    kind = message.WhichOneof("event")
    if kind == "group_moved":
        moved = message.group_moved
        return GroupMoved(moved.group, InaGroup(**_fields(moved.place)), moved.resume_from)
    if kind in EVENTS:
        return EVENTS[kind](**_fields(getattr(message, kind)))
    return LeaseLost(f"the controller says {kind!r}, which this version does not know")
