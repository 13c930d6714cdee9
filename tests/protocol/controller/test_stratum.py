# SPDX-License-Identifier: Apache-2.0
"""The controller on Tofinos with Stratum's P4Runtime, alone and beside other targets."""

from __future__ import annotations

import asyncio
import dataclasses
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import finsy as fy
import grpc
import pytest
from controller_world import DEADLINE_S, World, served
from finsy.proto import p4i
from google.protobuf import text_format
from stratum_switch import StratumSwitch
from test_targets import Embedded, contribution, started
from watcher import Watcher

from railweave.commands import cluster_checks
from railweave.commands.checks import Finding
from railweave.controller import desired
from railweave.controller.errors import ControllerError, InvalidRequest
from railweave.controller.fabric import Fabric
from railweave.controller.state import is_note
from railweave.p4src import tofino_program
from railweave.p4src.artifacts import artifact
from railweave.p4src.tofino import PROFILES, Profile
from railweave.topologies.cluster import load
from railweave.topologies.model import Nic, Plane, Switch, Topology, Trunk
from railweave.v1 import controller_pb2 as pb

PORTS = {"1/0": 0, "2/0": 4, "3/0": 8}
NICS = tuple(
    Nic(f"h{host}", "", f"10.1.0.{host}", f"02:00:00:01:00:0{host}", "tor", port)
    for host, port in enumerate(PORTS.values(), 1)
)


GUARD = {"trunk_ports", "ipv4_sources", "arp_sources", "other_sources", "forged_sources"}


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """Return a folder with the compiler's output for the smallest program."""
    return compiled(tmp_path, PROFILES[0])


def compiled(root: Path, profile: Profile) -> Path:
    """Make a folder like the compiler's output. Only its P4Info is real."""
    folder = root / profile.name
    (folder / "pipe").mkdir(parents=True)
    shutil.copyfile(profile.p4info(), folder / tofino_program.P4INFO)
    (folder / tofino_program.BFRT).write_bytes(b"{}")
    (folder / tofino_program.CONTEXT).write_bytes(b"[]" * 100_000)
    (folder / tofino_program.binary(profile.chip)).write_bytes(bytes(range(256)))
    return folder


@asynccontextmanager
async def running() -> AsyncIterator[StratumSwitch]:
    switch = StratumSwitch(device_id=3, ports=PORTS)
    await switch.start()
    try:
        yield switch
    finally:
        await switch.stop()


def switch_of(tofino: StratumSwitch, program: Path, /, **changes: object) -> Switch:
    there = Switch("tor", f"127.0.0.1:{tofino.port}", tofino.device_id, str(program), PORTS)
    return dataclasses.replace(there, **changes)


def alone(switch: Switch) -> Topology:
    """Return a topology of three hosts on one Tofino."""
    return Topology("t", ("h1", "h2", "h3"), (Plane("ina", "ina", "10.1.0.0/16", 0, (switch,), NICS),))


@asynccontextmanager
async def controlled(tofino: StratumSwitch, topology: Topology) -> AsyncIterator[World]:
    async with served(topology) as (running, stub):
        yield World(tofino, topology, running, stub)


@asynccontextmanager
async def on_one_tofino(program: Path) -> AsyncIterator[World]:
    async with running() as tofino, controlled(tofino, alone(switch_of(tofino, program))) as world:
        yield world


@pytest.fixture
def world(program: Path) -> AbstractAsyncContextManager[World]:
    """Return a controller of three hosts on one Tofino."""
    return on_one_tofino(program)


async def join(world: World, size: int, planes: Sequence[str] = ("ina",)) -> list[pb.JoinGroupResponse]:
    def request(rank: int) -> pb.JoinGroupRequest:
        return world.request(rank, size, rails=[world.offer(rank + 1, plane) for plane in planes])

    return list(await asyncio.gather(*(world.stub.JoinGroup(request(rank)) for rank in range(size))))


async def test_it_gets_its_program_as_stratum_takes_it(program: Path) -> None:
    async with running() as tofino:
        topology = alone(switch_of(tofino, program))
        async with served(topology):
            (profile,) = tofino.pipeline.profiles
            assert (profile.profile_name, list(profile.pipe_scope)) == ("pipe", [0, 1, 2, 3])
            assert profile.context == (program / tofino_program.CONTEXT).read_bytes()
            assert profile.binary == (program / tofino_program.binary("tofino")).read_bytes()
            assert tofino.pipeline.bfruntime_info == b"{}"
            assert tofino.p4info == fy.P4Schema(program / tofino_program.P4INFO).p4info
        async with served(topology):
            assert tofino.pushes == 1


async def test_what_is_written_is_read_back_counted_and_taken_away(world: World) -> None:
    switch = world.managed
    empty = await switch.link.read()
    assert empty == switch.wanted()
    sources = desired.source_guard(world.topology.planes[0], "tor").entries
    assert {dict(entry.match)["ingress_port"] for entry in sources} == set(PORTS.values())
    assert sources <= empty.entries
    answers = await join(world, 3)
    assert {place.lanes for answer in answers for place in answer.ina} == {PROFILES[0].lanes}
    assert await switch.link.read() == switch.wanted()
    assert await switch.reconcile() == []
    group = answers[0].ina[0].group
    assert world.switch.multicasts()[group + 1] == {(0, 1), (4, 2), (8, 3)}
    (counters,) = (await world.stub.GetSwitchCounters(pb.SwitchCountersRequest())).switches
    assert not counters.problem
    assert "members" in counters.packets
    assert "injected_drops_ingress" not in counters.packets
    with pytest.raises(InvalidRequest, match="switch tor runs a program without loss"):
        await world.running.fabric.set_loss("ina", "", 0, "both", 0.5)
    await world.leave(answers)
    await world.running.fabric.settled()
    assert (await switch.link.read()).multicasts == empty.multicasts


async def test_a_program_without_source_guard_gets_no_entries_of_it(
    program: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Earlier builds of the program have no source guard."""
    path = program / tofino_program.P4INFO
    info = text_format.Parse(path.read_text(), p4i.P4Info())
    for parts in (info.tables, info.counters):
        kept = [part for part in parts if part.preamble.alias not in GUARD]
        del parts[:]
        parts.extend(kept)
    path.write_text(text_format.MessageToString(info))
    async with on_one_tofino(program) as world:
        assert not GUARD & {entry.table for entry in (await world.managed.link.read()).entries}
        assert "its program has no source guard" in caplog.text


async def test_restarted_it_has_its_program_and_empty_tables(world: World) -> None:
    answers = await join(world, 3)
    watchers = [Watcher(world, answer) for answer in answers]
    await world.watched("job", 0, 1, 2)
    await world.switch.restart(lose_state=True)
    for watcher in watchers:
        await watcher.paused(0)
    for watcher in watchers:
        assert (await watcher.moved()).place.group == 2
    assert await world.managed.link.read() == world.managed.wanted()
    assert world.switch.pushes == 1


async def test_a_full_table_is_named_and_leaves_nothing(world: World) -> None:
    switch = world.managed
    before = await switch.link.read()
    world.switch.room = 2
    with pytest.raises(grpc.aio.AioRpcError, match=r"One or more write operations failed\. No space left"):
        await join(world, 3)
    await world.running.fabric.settled()
    world.switch.room = None
    await switch.reconcile()
    left = await switch.link.read()
    assert left.multicasts == before.multicasts
    assert all(is_note(entry) for entry in left.entries - before.entries)


@pytest.mark.parametrize(
    ("changes", "problem", "remedy"),
    [
        ({"device_id": 7}, "has no such device 7: Node with ID 7 is unknown", "into `device_id`"),
        ({"ports": {"2/0": 5}}, "port 2/0 has another number, 4", "into its `ports`"),
        ({"p4runtime": "127.0.0.1:1"}, "Connect call failed", "start the switch"),
        ({}, "refuses the program: INTERNAL: no such chip", "compiled for its chip"),
    ],
)
async def test_what_is_wrong_is_said_by_the_controller_and_by_doctor(
    program: Path, changes: dict[str, object], problem: str, remedy: str
) -> None:
    async with running() as tofino:
        tofino.refusal = "no such chip"
        switch = switch_of(tofino, program, **changes)
        fabric = Fabric(alone(switch), artifact(64), suspect_s=30)
        (managed,) = fabric.switches()
        async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as tasks:
            links = tasks.create_task(fabric.run())
            while problem not in managed.link.problem:
                await asyncio.sleep(0.005)
            links.cancel()
        found = await asked(program, switch)
    assert (found.name, found.present) == ("switch tor, P4Runtime", False)
    assert problem in found.detail
    assert found.expected
    assert remedy in found.remedy


async def test_without_its_program_the_controller_does_not_start(program: Path) -> None:
    async with running() as tofino:
        switch = switch_of(tofino, program, tofino="/nowhere")
        message = "/nowhere: no p4info.txtpb"
        with pytest.raises(ControllerError, match=message):
            async with served(alone(switch)):
                pass
        found = await asked(program, switch)
    assert (found.detail, found.expected) == (message, "a compiled program")
    assert found.remedy.startswith("make it: `python -m railweave.p4src.tofino")


async def test_doctor_finds_a_tofino_in_order_and_changes_nothing(program: Path) -> None:
    async with running() as tofino:
        found = await asked(program, switch_of(tofino, program))
        assert (found.present, found.detail) == (True, "answers, and takes the program")
        assert (tofino.verified, tofino.pushes) == (1, 0)


async def asked(program: Path, switch: Switch) -> Finding:
    """Return doctor's finding about the switch when the controller does not answer."""
    file = program.parent / "cluster.yaml"
    file.write_text(cluster_file(switch))
    (found,) = await cluster_checks.ask_switches(load(file))
    return found


def cluster_file(switch: Switch) -> str:
    ports = ", ".join(f"{name}: {number}" for name, number in switch.ports.items())
    return f"""\
controller: 127.0.0.1:2
planes:
  ina:
    network: 10.1.0.0/16
    switches:
      tor:
        p4runtime: {switch.p4runtime}
        device_id: {switch.device_id}
        tofino: {switch.tofino}
        ports: {{{ports}}}
hosts:
  h2: {{ina: {{address: 10.1.0.2, mac: 02:00:00:01:00:02, port: 2/0}}}}
"""


async def test_tofinos_with_other_lanes_are_no_plane(tmp_path: Path) -> None:
    folders = [compiled(tmp_path, profile) for profile in PROFILES if profile.chip == "tofino2"]
    switches = [
        Switch(f"s{n}", "127.0.0.1:1", 1, str(folder), {f"{n}/0": n}) for n, folder in enumerate(folders)
    ]
    plane = Plane("ina", "ina", "10.1.0.0/16", 0, tuple(switches), ())
    with pytest.raises(ValueError, match=r"'ina': its Tofinos' programs differ in lanes: 32 on s0, 64 on s1"):
        Fabric(Topology("t", (), (plane,)), artifact(64), suspect_s=30)


async def test_one_tree_of_both_targets(program: Path) -> None:
    """A tree has two embedded leaves below a Tofino. A plane without a Tofino keeps its lanes."""
    leaves = [Embedded(), Embedded()]
    async with running() as tofino, started(leaves[0]), started(leaves[1]), started(other := Embedded()):
        names = ("leaf1", "leaf2")
        below = [Switch(name, f"127.0.0.1:{leaf.port}") for name, leaf in zip(names, leaves, strict=True)]
        places = (("leaf1", 1), ("leaf1", 2), ("leaf2", 1))
        nics = [dataclasses.replace(nic, switch=s, port=p) for nic, (s, p) in zip(NICS, places, strict=True)]
        trunks = [Trunk(name, 9, "tor", port) for name, port in zip(names, (0, 4), strict=True)]
        mixed = (*below, switch_of(tofino, program))
        beside = (Switch("other", f"127.0.0.1:{other.port}"),)
        planes = (
            Plane("ina", "ina", "10.1.0.0/16", 0, mixed, tuple(nics), tuple(trunks)),
            Plane("two", "ina", "10.2.0.0/16", 0, beside, tuple(at_other(nic) for nic in NICS)),
        )
        async with controlled(tofino, Topology("t", ("h1", "h2", "h3"), planes)) as world:
            answers = await join(world, 3, ("ina", "two"))
            lanes = [{place.rail: place.lanes for place in answer.ina} for answer in answers]
            assert lanes == [{"ina": PROFILES[0].lanes, "two": 64}] * 3
            for switch in world.running.fabric.switches():
                assert await switch.link.read() == switch.wanted()
            place = next(place for place in answers[0].ina if place.rail == "ina")
            first, second = (contribution(host, place, [host] * PROFILES[0].lanes) for host in (1, 2))
            assert leaves[0].pipeline.inject(1, first) == []
            ((port, sum_of_both),) = leaves[0].pipeline.inject(2, second)
            assert (port, sum_of_both[58:]) == (9, bytes([0, 0, 0, 3]) * PROFILES[0].lanes)
            assert tofino.multicasts()[place.group + 1] == {(0, 1), (4, 2)}


def at_other(nic: Nic) -> Nic:
    host = int(nic.host[1:])
    return Nic(nic.host, "", f"10.2.0.{host}", f"02:00:00:02:00:0{host}", "other", host)
