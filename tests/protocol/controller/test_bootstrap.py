# SPDX-License-Identifier: Apache-2.0
"""The agents' client with a controller: joining, events, leaving, and restarts of the controller."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Iterator

import grpc
import pytest
from controller_world import World, controller_for, new_world, running_switch

from railweave.hosts import bootstrap, errors
from railweave.hosts.bootstrap import Membership
from railweave.hosts.events import Decision, Event, GroupMoved, GroupPaused, MemberLeft, RailOffer
from railweave.v1 import controller_pb2 as pb

Events = queue.Queue[tuple[int, Event]]


def offers(rank: int, kind: str = "ina") -> list[RailOffer]:
    host = rank + 1
    ina = RailOffer(
        *("ina", "ina", "ina", f"10.1.0.{host}", f"02:00:00:01:00:{host:02x}", 4000 + rank),
        control_port=4100 + rank,
    )
    tcp = RailOffer("tcp", "tcp", "tcp", f"10.2.0.{host}", port=5000, rate_bps=10**8)
    return [ina, tcp] if kind == "ina" else [tcp]


def joiner(port: int, events: Events, **changes: object) -> Callable[[int], Membership]:
    """Return a blocking call that joins as a rank. Its events go to the queue."""

    def join(rank: int) -> Membership:
        options = {"job": "job", "rank": rank, "size": 2, "rails": offers(rank), "deadline_s": 10.0}
        options |= {"on_event": lambda event: events.put((rank, event))}
        return bootstrap.join(f"127.0.0.1:{port}", **{**options, **changes})

    return join


async def join_all(world: World, size: int, events: Events, **changes: object) -> list[Membership]:
    join = joiner(world.running.port, events, size=size, **changes)
    return list(await asyncio.gather(*(asyncio.to_thread(join, rank) for rank in range(size))))


async def leave_all(memberships: list[Membership]) -> None:
    for membership in memberships:
        await asyncio.to_thread(membership.leave)


async def test_join_tells_members_groups_and_refusals_and_leaving_is_not_dying(world: World) -> None:
    events: Events = queue.Queue()
    first, second, third = await join_all(world, 3, events)
    assert [m.rank for m in (first, second, third)] == [0, 1, 2]
    assert first.members == second.members == third.members
    assert first.members[1] == tuple(offers(1))
    (place,) = second.groups["ina"]
    assert (place.child, place.lanes, place.tree) == (1, 64, 0)
    assert first.secret == second.secret == third.secret
    assert not first.refusals
    await world.watched("job", 0, 1, 2)
    for left in (third, second, first):
        await leave_all([left, left])  # the second time is harmless
        found = [await asyncio.to_thread(events.get, timeout=10) for _ in range(left.rank)]
        assert sorted(found, key=str) == [(rank, MemberLeft(left.rank)) for rank in range(left.rank)]
    await world.settled(lambda: set(world.switch.multicasts()) == {1})
    assert events.empty()


async def test_a_controller_that_gives_no_secret_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async with new_world(hosts=1) as world:
        monkeypatch.setattr("railweave.controller.groups.secrets.token_bytes", lambda size: b"")
        with pytest.raises(
            errors.RailweaveError, match="a secret of 0 bytes: expected 32 bytes; install the same railweave"
        ):
            await join_all(world, 1, queue.Queue())


async def test_a_rank_that_has_decided_thousands_of_things_is_not_lost() -> None:
    """The rank reports as many decisions as fit into one message to the controller."""
    many = [Decision("tcp", "all_reduce", "int32", "sum", 1, True, "", "x" * 90, n) for n in range(5000)]
    async with new_world(hosts=2, lease_s=4) as world:
        memberships = await join_all(world, 2, queue.Queue(), decisions=lambda: many)
        async with asyncio.timeout(20):
            told: list[int] = []
            while not told:
                await asyncio.sleep(0.005)
                (job,) = (await world.stub.Explain(pb.ExplainRequest())).jobs
                told = [decision.calls for decision in job.ranks[1].decisions]
        assert told == list(range(len(told)))
        await leave_all(memberships)


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        ({"rails": []}, errors.InvalidOption, "0 rails: expected 1 to 16"),
        ({"deadline_s": 0.2}, errors.JoinTimeout, r"missing ranks \[1\] of 2"),
        ({"size": 5000}, errors.InvalidOption, "world size 5000"),
        ({"rails": [RailOffer("a", "ina", "ina", "10.1.0.1", port=-1)]}, errors.InvalidOption, "port"),
    ],
)
async def test_errors_are_of_the_agents_own_kind(
    world: World, changes: dict[str, object], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        await asyncio.to_thread(joiner(world.running.port, queue.Queue(), **changes), 0)


async def test_a_job_that_runs_is_refused_a_second_time(world: World) -> None:
    memberships = await join_all(world, 2, queue.Queue())
    with pytest.raises(errors.GroupRefused, match="runs already with 2 ranks"):
        await asyncio.to_thread(joiner(world.running.port, queue.Queue()), 0)
    await leave_all(memberships)


def test_nobody_at_the_address_is_said_within_the_deadline() -> None:
    began = time.monotonic()
    with pytest.raises(errors.ControllerUnreachable, match=r"no answer from 127\.0\.0\.1:1 within 0\.3 s"):
        joiner(1, queue.Queue(), deadline_s=0.3)(0)
    assert time.monotonic() - began < 5


async def test_memberships_outlive_controllers() -> None:
    """Each controller listens on the same port. Agents present their leases again, and get no events."""
    events: Events = queue.Queue()
    async with running_switch() as switch:
        async with controller_for(switch) as world:
            port = world.running.port
            memberships = await join_all(world, 2, events)
            before = switch.snapshot()
        for _ in range(2):
            async with controller_for(switch, listen=f"127.0.0.1:{port}") as world:
                await world.watched("job", 0, 1)
                assert switch.snapshot() == before
                assert events.empty()
    await leave_all(memberships)


class DeafCall(grpc.RpcError):
    """A call that brings the agent no events, and fails when the test says so. Its other end stays open."""

    def __init__(self, *, has_status: bool) -> None:
        self.over, self.done = threading.Event(), threading.Event()
        self._has_status = has_status

    def __iter__(self) -> Iterator[pb.Event]:
        self.over.wait()
        return iter(())

    def add_callback(self, callback: Callable[[], None]) -> bool:
        return not self._has_status

    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.UNAVAILABLE

    def requests(self, heartbeats: Iterator[pb.Heartbeat]) -> Iterator[pb.Heartbeat]:
        """Yield the first heartbeat, and end with the test."""
        yield next(heartbeats)
        self.done.wait()


def deafen(monkeypatch: pytest.MonkeyPatch, calls: list[DeafCall], *, connect: bool) -> None:
    """Replace the first calls of Watch. If they connect, the controller takes them for streams."""
    left, stub_of = list(calls), bootstrap.pb_grpc.ControllerStub
    held: list[object] = []  # gRPC ends calls that nobody holds

    def stub(channel: grpc.Channel) -> object:
        made = stub_of(channel)
        watch = made.Watch

        def deaf_first(heartbeats: Iterator[pb.Heartbeat]) -> object:
            if not left:
                return watch(heartbeats)
            call = left.pop()
            if connect:
                held.append(watch(call.requests(heartbeats)))
            return call

        made.Watch = deaf_first
        return made

    monkeypatch.setattr(bootstrap.pb_grpc, "ControllerStub", stub)


async def test_a_stream_whose_failure_its_reader_never_hears_of(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = [DeafCall(has_status=True), DeafCall(has_status=True)]
    deafen(monkeypatch, calls, connect=False)
    memberships = await join_all(world, 2, queue.Queue())
    await world.watched("job", 0, 1)
    await leave_all(memberships)
    for call in calls:
        call.over.set()


async def test_an_event_that_a_dying_connection_has_swallowed_arrives_by_the_next_one(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: Events = queue.Queue()
    call = DeafCall(has_status=False)
    deafen(monkeypatch, [call], connect=True)
    memberships = await join_all(world, 2, events)
    await world.watched("job", 0, 1)
    await world.switch.restart(lose_state=True)
    hearing, event = await asyncio.to_thread(events.get, timeout=10)
    assert isinstance(event, GroupPaused)
    memberships[hearing].report_position(event.group, 7)
    lease = world.running.groups.lease(memberships[1 - hearing]._lease)
    await world.settled(lease.events.empty)  # the controller has sent the event, and the call lost it
    call.over.set()
    assert await asyncio.to_thread(events.get, timeout=10) == (1 - hearing, event)
    memberships[1 - hearing].report_position(event.group, 5)
    moved = 0
    while moved < 2:
        _, event = await asyncio.to_thread(events.get, timeout=10)
        moved += isinstance(event, GroupMoved) and event.resume_from == 5
    call.done.set()
    await leave_all(memberships)


async def test_leaving_a_controller_that_is_gone_is_quick_and_leaves_no_thread() -> None:
    async with new_world(hosts=1) as world:
        memberships = await join_all(world, 1, queue.Queue())
    began = time.monotonic()
    await leave_all(memberships)
    assert time.monotonic() - began < 5
    assert not [t for t in threading.enumerate() if t.name.startswith("railweave watch")]
