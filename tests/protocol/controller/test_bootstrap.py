# SPDX-License-Identifier: Apache-2.0
"""The agents' client with a controller: joining, events, leaving, and restarts of the controller."""

from __future__ import annotations

import asyncio
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import grpc
import pytest
from controller_world import World, controller_for, new_world
from fake_switch import FakeSwitch

from railweave.hosts import bootstrap, errors
from railweave.hosts.bootstrap import Membership
from railweave.hosts.events import Decision, Event, GroupMoved, GroupPaused, MemberLeft, MemberLost, RailOffer
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


async def test_join_tells_members_groups_and_refusals() -> None:
    async with new_world(hosts=3) as world:
        events: Events = queue.Queue()
        first, second, third = memberships = await join_all(world, 3, events)
        assert [m.rank for m in memberships] == [0, 1, 2]
        assert first.members == second.members == third.members
        assert first.members[1] == tuple(offers(1))
        (place,) = second.groups["ina"]
        assert (place.child, place.lanes, place.tree) == (1, 64, 0)
        assert first.secret == second.secret == third.secret
        assert not first.refusals
        await leave_all(memberships)
        await leave_all(memberships)  # harmless
        await world.settled(lambda: set(world.switch.multicasts()) == {1})


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
    async with new_world(hosts=2) as world:
        memberships = await join_all(world, 2, queue.Queue(), decisions=lambda: many)
        async with asyncio.timeout(20):
            told: list[int] = []
            while not told:
                await asyncio.sleep(0.005)
                (job,) = (await world.stub.Explain(pb.ExplainRequest())).jobs
                told = [decision.calls for decision in job.ranks[1].decisions]
        assert told == list(range(len(told)))
        await leave_all(memberships)


async def test_a_process_that_dies_is_named_to_its_peers() -> None:
    """The peer is a real process, so that only the kernel closes its connection."""
    program = (
        "import sys; from railweave.hosts import bootstrap as b\n"
        "rail = b.RailOffer('tcp', 'tcp', 'tcp', '10.2.0.2', port=5000)\n"
        "b.join(sys.argv[1], job='job', rank=1, size=2, rails=[rail])\n"
        "print('in', flush=True); sys.stdin.read()\n"
    )
    async with new_world(hosts=2) as world:
        address = f"127.0.0.1:{world.running.port}"
        peer = await asyncio.create_subprocess_exec(
            sys.executable, "-c", program, address, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        events: Events = queue.Queue()
        join = joiner(world.running.port, events, rails=offers(0, "tcp"))
        membership = await asyncio.to_thread(join, 0)
        assert await peer.stdout.readline() == b"in\n"
        await world.watched("job", 0, 1)
        began = time.monotonic()
        peer.kill()
        rank, event = await asyncio.to_thread(events.get, timeout=10)
        assert (rank, event.rank) == (0, 1)
        assert isinstance(event, MemberLost)
        assert time.monotonic() - began < 5
        await peer.wait()
        await leave_all([membership])


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


async def test_leaving_is_not_dying(world: World) -> None:
    events: Events = queue.Queue()
    first, second = await join_all(world, 2, events)
    await world.watched("job", 0, 1)
    await leave_all([second])
    assert await asyncio.to_thread(events.get, timeout=10) == (0, MemberLeft(1))
    await leave_all([first])
    assert events.empty()


async def test_memberships_outlive_ten_controllers() -> None:
    """Each controller listens on the same port. Agents present their leases again, and get no events."""
    switch, events = FakeSwitch(), queue.Queue()
    await switch.start()
    async with controller_for(switch, hosts=2) as world:
        port = world.running.port
        memberships = await join_all(world, 2, events)
        before = switch.snapshot()
    for _ in range(10):
        async with controller_for(switch, hosts=2, listen=f"127.0.0.1:{port}") as world:
            await world.watched("job", 0, 1)
            assert switch.snapshot() == before
    async with controller_for(switch, hosts=2, listen=f"127.0.0.1:{port}") as world:
        await world.watched("job", 0, 1)
        await leave_all(memberships)
        await world.settled(lambda: set(switch.multicasts()) == {1})
    await switch.stop()
    lost = [event for _, event in list(events.queue) if not isinstance(event, MemberLeft)]
    assert lost == []


class UnreadableCall(grpc.RpcError):
    """A call that has failed, but whose reader still waits for messages."""

    def __init__(self) -> None:
        self.over = threading.Event()

    def __iter__(self) -> Iterator[pb.Event]:
        self.over.wait()
        return iter(())

    def add_callback(self, callback: Callable[[], None]) -> bool:
        return False  # the call already has a status

    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.UNAVAILABLE


async def test_a_stream_whose_failure_its_reader_never_hears_of(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = [UnreadableCall(), UnreadableCall()]
    left, stub_of = list(calls), bootstrap.pb_grpc.ControllerStub

    def stub(channel: grpc.Channel) -> object:
        made = stub_of(channel)
        watch = made.Watch
        made.Watch = lambda heartbeats: left.pop() if left else watch(heartbeats)
        return made

    monkeypatch.setattr(bootstrap.pb_grpc, "ControllerStub", stub)
    memberships = await join_all(world, 2, queue.Queue())
    await world.watched("job", 0, 1)
    assert left == []
    await leave_all(memberships)
    for call in calls:
        call.over.set()


class Relay:
    """A relay between agents and the controller.

    It can lose the controller's messages, and leave the controller's connections open.
    """

    def __init__(self, port: int) -> None:
        self.lossy = False
        self._port = port
        self._agents: list[asyncio.StreamWriter] = []
        self._held: list[asyncio.StreamWriter] = []  # connections that the controller must still see as open
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> int:
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        return int(server.sockets[0].getsockname()[1])

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        down, up = await asyncio.open_connection("127.0.0.1", self._port)
        self._agents.append(writer)
        self._held.append(up)
        self._tasks += [
            asyncio.create_task(self._pass_on(reader, up, down=False)),
            asyncio.create_task(self._pass_on(down, writer, down=True)),
        ]

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, down: bool) -> None:
        while data := await reader.read(65536):
            if not (down and self.lossy):
                writer.write(data)

    def hang_up(self) -> None:
        """End the connections with the agents. The controller does not notice."""
        while self._tasks:
            self._tasks.pop().cancel()
        while self._agents:
            self._agents.pop().close()


async def test_an_event_that_a_dying_connection_has_swallowed_arrives_by_the_next_one(world: World) -> None:
    relay, events = Relay(world.running.port), queue.Queue()
    ports = [await relay.start(), world.running.port]
    joins = [asyncio.to_thread(joiner(port, events), rank) for rank, port in enumerate(ports)]
    memberships = await asyncio.gather(*joins)
    await world.watched("job", 0, 1)
    relay.lossy = True
    await world.switch.restart(lose_state=True)
    rank, event = await asyncio.to_thread(events.get, timeout=10)
    assert rank == 1
    assert isinstance(event, GroupPaused)
    memberships[1].report_position(event.group, 7)
    lease = world.running.groups.lease(memberships[0]._lease)
    await world.settled(lease.events.empty)  # the controller has sent all events, and the relay lost them
    relay.lossy = False
    relay.hang_up()
    assert (await asyncio.to_thread(events.get, timeout=10))[0] == 0
    memberships[0].report_position(event.group, 5)
    moved = 0
    while moved < 2:
        _, event = await asyncio.to_thread(events.get, timeout=10)
        moved += isinstance(event, GroupMoved) and event.resume_from == 5
    await leave_all(list(memberships))
    relay.hang_up()


async def test_leaving_a_controller_that_is_gone_is_quick_and_leaves_no_thread() -> None:
    async with new_world(hosts=1) as world:
        memberships = await join_all(world, 1, queue.Queue())
    began = time.monotonic()
    await leave_all(memberships)
    assert time.monotonic() - began < 5
    assert not [t for t in threading.enumerate() if t.name.startswith("railweave watch")]
