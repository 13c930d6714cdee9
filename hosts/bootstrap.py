# SPDX-License-Identifier: Apache-2.0
"""How a rank finds the others: joins its job at the controller, then keeps its lease and hears of events.

Synchronous, with one daemon thread: user programs get no event loop from here. Importing gRPC takes longer
than the rest of railweave, so import this module when a job is joined and not before.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import grpc
from railweave.hosts.errors import (
    ControllerUnreachable,
    GroupRefused,
    InvalidOption,
    JoinTimeout,
    RailweaveError,
)
from railweave.v1 import controller_pb2 as pb
from railweave.v1 import controller_pb2_grpc as pb_grpc

HEARTBEATS_PER_LEASE = 4
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 1.0  # between attempts to reach a controller that is gone
LEAVE_S = 2.0  # for saying goodbye
ANSWER_S = 5.0  # beyond the deadline that the controller keeps itself
CHANNEL_OPTIONS = (
    ("grpc.enable_http_proxy", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
)
RETRIED = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)


@dataclass(frozen=True)
class RailOffer:
    """One rail as this rank offers it; the fields are those of the message RailOffer."""

    name: str
    kind: str
    plane: str
    address: str
    mac: str = ""
    port: int = 0
    queue_pairs: Sequence[int] = ()
    rate_bps: int = 0


@dataclass(frozen=True)
class InaGroup:
    """An ina rail's place in its aggregation tree; the fields are those of the message InaGroup."""

    rail: str
    group: int
    virtual_address: str
    udp_port: int
    child: int
    slots: int
    lanes: int
    depth: int


@dataclass(frozen=True)
class MemberLost:
    """A rank is gone without a word; the group has ended."""

    rank: int
    reason: str


@dataclass(frozen=True)
class MemberLeft:
    """A rank has left in good order and takes part in no further collective."""

    rank: int


@dataclass(frozen=True)
class PlaneDown:
    """Sums in flight on a plane are lost."""

    plane: str
    reason: str


@dataclass(frozen=True)
class PlaneUp:
    """A plane can be used again."""

    plane: str


@dataclass(frozen=True)
class LeaseLost:
    """The controller does not know this group any more: nobody watches it, its ina rails are gone."""

    reason: str


Event = MemberLost | MemberLeft | PlaneDown | PlaneUp | LeaseLost


def join(
    controller: str,
    *,
    job: str,
    rank: int,
    size: int,
    rails: Sequence[RailOffer],
    deadline_s: float = 60.0,
    on_event: Callable[[Event], None] = lambda event: None,
) -> Membership:
    """Join a job and wait until all of its `size` ranks are in.

    `controller` is HOST:PORT. `on_event` is called from the watching thread, and must not block for long.
    Raises InvalidOption (the ranks disagree, or an option makes no sense), GroupRefused, JoinTimeout (names
    the missing ranks), ControllerUnreachable.
    """
    try:
        offers = [_message(rail) for rail in rails]
        request = pb.JoinGroupRequest(job=job, rank=rank, size=size, rails=offers)
    except (ValueError, TypeError) as error:
        raise InvalidOption(f"job {job!r}, rank {rank!r} of {size!r}, rails {rails!r}: {error}") from error
    channel = grpc.insecure_channel(controller, options=CHANNEL_OPTIONS)
    try:
        response = _join(channel, controller, request, deadline_s)
    except BaseException:
        channel.close()
        raise
    return Membership(channel, request, response, on_event)


def _message(rail: RailOffer) -> pb.RailOffer:
    return pb.RailOffer(
        name=rail.name,
        kind=rail.kind,
        plane=rail.plane,
        address=rail.address,
        mac=rail.mac,
        port=rail.port,
        queue_pairs=rail.queue_pairs,
        rate_bps=rail.rate_bps,
    )


def _join(
    channel: grpc.Channel, controller: str, request: pb.JoinGroupRequest, deadline_s: float
) -> pb.JoinGroupResponse:
    """Call JoinGroup, again if the controller goes away in between, until the deadline."""
    end = time.monotonic() + deadline_s
    stub = pb_grpc.ControllerStub(channel)  # type: ignore[no-untyped-call]
    while True:
        try:
            grpc.channel_ready_future(channel).result(timeout=max(end - time.monotonic(), 0))
        except grpc.FutureTimeoutError:
            raise ControllerUnreachable(
                f"no controller answered at {controller} within {deadline_s:g} s; "
                "is `railweave controller` running?"
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
        case _:
            return RailweaveError(f"controller at {controller}: {text}")


class Membership:
    """A rank's place in a job that runs. Ends with `leave`, or as a context manager."""

    def __init__(
        self,
        channel: grpc.Channel,
        request: pb.JoinGroupRequest,
        response: pb.JoinGroupResponse,
        on_event: Callable[[Event], None],
    ) -> None:
        """Begin to watch; `join` makes memberships."""
        self.rank = request.rank
        self.size = request.size
        self.members: Mapping[int, tuple[RailOffer, ...]] = {
            member.rank: tuple(_offer(rail) for rail in member.rails) for member in response.members
        }
        self.ina: Mapping[str, InaGroup] = {group.rail: _ina(group) for group in response.ina}
        self.refusals: Mapping[str, str] = {refusal.rail: refusal.reason for refusal in response.refusals}
        self._channel = channel
        self._stub = pb_grpc.ControllerStub(channel)  # type: ignore[no-untyped-call]
        self._lease = response.lease
        self._pause_s = response.lease_s / HEARTBEATS_PER_LEASE
        self._resume = pb.Resume(
            job=request.job, rank=request.rank, size=request.size, rails=request.rails, ina=response.ina
        )
        self._on_event = on_event
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

    def leave(self) -> None:
        """End the membership in good order; a controller that is gone is not waited for. Safe to repeat."""
        if self._left.is_set():
            return
        self._left.set()
        with suppress(grpc.RpcError, ValueError):  # the group may have ended, the controller may be gone
            self._stub.LeaveGroup(pb.LeaveGroupRequest(lease=self._lease), timeout=LEAVE_S)
        self._channel.close()
        if threading.current_thread() is not self._thread:
            self._thread.join(LEAVE_S)

    def _watch(self) -> None:
        """Hold a stream until the group ends; after a break, present the lease again until it is answered."""
        pause = FIRST_PAUSE_S
        while not self._left.is_set():
            try:
                for message in self._stub.Watch(self._heartbeats(broken := threading.Event())):
                    pause = FIRST_PAUSE_S
                    self._on_event(_event(message))
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

    def _heartbeats(self, broken: threading.Event) -> Iterator[pb.Heartbeat]:
        """What the stream sends; gRPC reads it in a thread of its own, which must end with the stream."""
        yield pb.Heartbeat(lease=self._lease, resume=self._resume)
        while not (broken.wait(self._pause_s) or self._left.is_set()):
            yield pb.Heartbeat(lease=self._lease)


def _offer(rail: pb.RailOffer) -> RailOffer:
    return RailOffer(
        rail.name,
        rail.kind,
        rail.plane,
        rail.address,
        rail.mac,
        rail.port,
        tuple(rail.queue_pairs),
        rail.rate_bps,
    )


def _ina(group: pb.InaGroup) -> InaGroup:
    return InaGroup(
        group.rail,
        group.group,
        group.virtual_address,
        group.udp_port,
        group.child,
        group.slots,
        group.lanes,
        group.depth,
    )


def _event(message: pb.Event) -> Event:
    match message.WhichOneof("event"):
        case "member_lost":
            return MemberLost(message.member_lost.rank, message.member_lost.reason)
        case "member_left":
            return MemberLeft(message.member_left.rank)
        case "plane_down":
            return PlaneDown(message.plane_down.plane, message.plane_down.reason)
        case "plane_up":
            return PlaneUp(message.plane_up.plane)
        case other:
            return LeaseLost(f"the controller says {other!r}, which this version does not know")
