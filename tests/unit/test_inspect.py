# SPDX-License-Identifier: Apache-2.0
"""`railweave switch stats|tables|registers|…` on a switch in this process: output and refusals."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from io import StringIO
from pathlib import Path
from typing import Any

import grpc
import pytest
from compressed import unpacked
from finsy.proto import p4r
from p4runtime_clients import DEVICE, ENTITIES, Server, client, files
from p4runtime_entities import MODIFIED, WRITTEN, frame, write
from rich.console import Console
from typer.testing import CliRunner, Result
from vectors.case import case

from railweave.switch import inspection as inspection_module
from railweave.switch.cli import app
from railweave.switch.errors import SwitchError
from railweave.switch.impairment import Direction, Impairment, ImpairmentCounts
from railweave.switch.inspect.cells import runs
from railweave.switch.inspect.names import number, span
from railweave.switch.inspect.text import print_stats
from railweave.switch.inspection import Inspection
from railweave.switch.p4runtime.server import Extra
from railweave.switch.p4runtime.service import Service
from railweave.switch.pipeline import Pipeline, Target, WeightedAction, lpm
from railweave.switch.ports import PortCounters
from railweave.v1 import switch_pb2, switch_pb2_grpc

Run = Callable[..., Awaitable[Result]]
WIDTHS = Path(__file__).parents[1] / "fusion" / "widths64.json"


class FakePorts:
    """Two ports. The second port is down."""

    execution = "compiled"

    def use(self, pipeline: Pipeline | None) -> None:
        """Ignore the pipeline: the test injects the packets."""

    def __init__(self) -> None:
        self.bad: dict[tuple[int, Direction], Impairment] = {}
        self.down = 2

    def set_impairment(self, port: int, direction: Direction, impairment: Impairment | None) -> None:
        if impairment is None:
            self.bad.pop((port, direction), None)
        else:
            self.bad[port, direction] = impairment

    def impairment_counts(self, port: int, direction: Direction) -> ImpairmentCounts | None:
        zeros = {"duplicated": 0, "reordered": 0, "corrupted": 0, "overflowed": 0}
        return ImpairmentCounts(packets=50, lost=3, **zeros) if (port, direction) in self.bad else None

    def counters(self) -> list[PortCounters]:
        zeros = dict.fromkeys(
            ("rx_frames", "rx_missed", "rx_refused", "tx_frames", "tx_refused", "tx_rewritten"), 0
        )
        counted = {"rx_packets": 1234, "rx_bytes": 99, "tx_packets": 0, "tx_bytes": 0, "tx_dropped": 7}
        return [
            PortCounters(port=n, interface=f"s{n}", up=n != self.down, **counted, **zeros) for n in (1, 2)
        ]


def alone(ports: FakePorts | None = None) -> Inspection:
    """Return an inspection without a server."""
    return Inspection(ports or FakePorts(), Service(DEVICE, lambda _: None))  # type: ignore[arg-type]


def command(server: Server, *arguments: str, device: int = DEVICE) -> Awaitable[Result]:
    """Run a command in a thread, instead of a separate process."""
    options = ["--grpc", server.address, "--device-id", str(device)]
    return asyncio.to_thread(CliRunner().invoke, app, [*arguments, *options])


async def told(server: Server, *arguments: str) -> Any:
    done = await command(server, *arguments, "--json", "-")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


@asynccontextmanager
async def with_one_of_everything(server: Server) -> AsyncIterator[Server]:
    """Serve a switch that has one of everything and has handled one packet."""
    made: list[Inspection] = []

    def extras(service: Service) -> list[Extra]:
        made.append(Inspection(FakePorts(), service))  # type: ignore[arg-type]
        return [made[0].extra()]

    server.extras = extras
    async with server, client(server, load=True, program=ENTITIES) as one:
        [inspection] = made
        inspection.use(server.pipelines[0])
        await write(one, *(("INSERT", entity) for entity in WRITTEN))
        await write(one, *(("MODIFY", entity) for entity in MODIFIED))
        server.pipelines[0].inject(5, frame())
        yield server


@pytest.fixture
def inspected(server: Server) -> AbstractAsyncContextManager[Server]:
    return with_one_of_everything(server)


async def test_as_json(inspected: Server) -> None:
    stats = await told(inspected, "stats", "--interval", "0")
    assert [port["rx_packets"] for port in stats["ports"]] == [1234, 1234]
    assert stats["pipeline"]["program"] == "entities.p4"
    assert stats["actions"] == [
        {"table": "hosts", "action": "host_port", "entries": 1, "packets": 1, "bytes": 64}
    ]
    [hosts] = (await told(inspected, "tables", "hosts"))["tables"]
    [entry] = hosts["entries"]
    assert entry["match"]["hdr.ethernet.destination"] == {"kind": "exact", "value": 0x020000000001}
    assert (entry["action"], entry["params"], entry["packets"]) == ("host_port", {"port": 3}, 1)
    assert entry["idle_timeout_s"] == 60
    assert entry["idle_s"] >= 0
    sizes = await told(inspected, "registers", "sizes", "5:8")
    assert (sizes["first"], sizes["values"]) == (5, [64, 0, 0x01020304])
    assert (await told(inspected, "registers"))["registers"] == [
        {"name": "sizes", "size": 8, "cells": "32 bits"}
    ]
    arrivals = await told(inspected, "counters", "arrivals", "1")
    assert arrivals["values"] == [{"packets": 5, "bytes": 0}]
    rates = await told(inspected, "meters", "rates", "2:4")
    assert rates["values"] == [{"cir": 10, "cburst": 20, "pir": 30, "pburst": 40}, None]
    groups = await told(inspected, "groups")
    assert groups["multicast"] == [
        {"group": 4, "replicas": [{"port": 1, "instance": 1}, {"port": 2, "instance": 2}]}
    ]
    assert groups["clone_sessions"][0]["packet_length"] == 64
    assert [len(profile["members"]) for profile in groups["profiles"]] == [3, 1]


TEXTS = {
    ("stats", "--interval", "0.01"): ["s1", "1,234", "rx/s", "host_port", "packets/s"],
    ("stats", "--interval", "0"): ["port 1 lost 7: could not leave: the port's queue was full"],
    ("tables",): ["hosts", "policy", "NoAction()"],
    ("tables", "policy"): ["0x800 &&& 0xff00", "3..9", "to_port(port=2)", "priority"],
    ("tables", "spread"): ["02:00:00:00:00:00/24", "group 1"],
    ("registers", "sizes"): ["8 cells of 32 bits", "0x1020304"],
    ("counters", "arrivals"): ["2 of those read are non-zero"],
    ("meters", "rates"): ["1 configured", "30"],
    ("groups",): ["1:1, 2:2", "next_hops: 3 members, 1 groups", "2x 1, 3x 2", "classify(class=9)"],
}
MISTAKES = {
    ("tables", "host"): ["table 'host'", "expected one of hosts"],
    ("registers", "xyz"): ["register 'xyz'", "expected one of sizes"],
    ("registers", "sizes", "8"): ["0…7", "'8'"],
    ("registers", "sizes", "4:2"): ["0…7", "'4:2'"],
    ("counters", "arrivals", "x"): ["'x'", "FIRST:END"],
    ("tables", "--json", "/dev/null/x.json"): ["/dev/null/x.json"],
    ("tables", "--tls-cert", "/nowhere.pem"): ["--tls-key"],
    ("tables", "--tls-ca", "/nowhere.pem"): ["/nowhere.pem"],
}


async def test_as_text_and_mistakes_are_named(inspected: Server) -> None:
    for status, cases in ((0, TEXTS), (2, MISTAKES)):
        for arguments, words in cases.items():
            done = await command(inspected, *arguments)
            assert done.exit_code == status, done.output
            said = done.stderr if status else done.output
            assert [word for word in words if word not in said] == [], arguments


async def test_links_are_made_bad_and_good_again(server: Server) -> None:
    ports = FakePorts()
    await server.stop()
    server.extras = lambda service: [Inspection(ports, service).extra()]  # type: ignore[arg-type]
    await server.start()

    async def impair(*arguments: str) -> Result:
        return await asyncio.to_thread(
            CliRunner().invoke, app, ["impair", "--grpc", server.address, *arguments]
        )

    assert (await impair("1/in:loss=0.5", "2:delay=2ms")).exit_code == 0
    assert ports.bad == {(1, "in"): Impairment(loss=0.5), (2, "out"): Impairment(delay_ns=2_000_000)}
    assert (await impair("--clear", "*/both", "2:loss=1")).exit_code == 0
    assert ports.bad == {(2, "out"): Impairment(loss=1)}
    for wrong, word in (("3:loss=1", "port 3: expected one of 1, 2"), ("1:loss=2", "0 to 1"), ("1", "'1'")):
        done = await impair(wrong)
        assert done.exit_code == 2
        assert word in done.stderr
    assert ports.bad == {(2, "out"): Impairment(loss=1)}


async def test_only_the_primary_and_an_operator_may_impair_links_and_trace(inspected: Server) -> None:
    async with (
        client(inspected, 5) as primary,
        client(inspected, 4) as backup,
        client(inspected, 3) as other,
        grpc.aio.insecure_channel(inspected.address) as channel,
    ):
        for one, role in ((primary, ""), (backup, ""), (other, "another")):
            update = p4r.MasterArbitrationUpdate(device_id=DEVICE, role=p4r.Role(name=role))
            update.election_id.CopyFrom(one.election_id)
            await one.stream.write(p4r.StreamMessageRequest(arbitration=update))
            await one.hear()
        stub = switch_pb2_grpc.SwitchStub(channel)  # type: ignore[no-untyped-call]
        senders = [(None, ""), (4, ""), (3, "another"), (3, ""), (9, "operator")]
        for number, role in senders:
            sender = None if number is None else switch_pb2.Primary(role=role, election_id_low=number)
            for call in (
                stub.SetImpairments(switch_pb2.SetImpairmentsRequest(bad=["1:loss=1"], primary=sender)),
                stub.Trace(switch_pb2.TraceRequest(count=1, primary=sender)).read(),
            ):
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await call
                denied = (grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.NOT_FOUND)
                assert refused.value.code() in denied, (number, role)
        sender = switch_pb2.Primary(election_id_low=5)
        await stub.SetImpairments(switch_pb2.SetImpairmentsRequest(bad=["1:loss=1"], primary=sender))


def test_groups_leave_out_members_whose_link_is_down() -> None:
    ports = FakePorts()
    inspection = alone(ports)
    pipeline = Pipeline.load(files(ENTITIES)[1].read_bytes())
    shares = tuple(WeightedAction("EntitiesIngress.to_port", (n,), watch_port=n) for n in (1, 2))
    pipeline.tables["EntitiesIngress.spread"].insert([lpm(0, 0)], Target(action_set=shares))

    def leaves() -> set[int]:
        return {out for source in range(32) for out, _ in pipeline.inject(5, frame(source))}

    assert leaves() == {1, 2}
    inspection.use(pipeline)  # the second port is down
    assert leaves() == {1}
    ports.down = 1
    inspection.look()
    assert leaves() == {2}


async def test_messages_of_the_program_are_said_and_kept(server: Server) -> None:
    inspection = alone()
    await server.stop()
    server.extras = lambda _: [inspection.extra()]
    await server.start()
    pipeline = case("messages").pipeline()
    inspection.use(pipeline)
    said: list[str] = []
    inspection.say = said.append
    pipeline.inject(1, bytes([41]) + bytes(11))
    pipeline.inject(1, bytes([100]) + bytes(11))
    [*texts, failed] = [row["text"] for row in (await told(server, "log"))["messages"]]
    assert texts[:2] == ["parsed 41", "a packet"]
    assert failed.startswith("assertion failed: messages.p4:")
    assert said == [*texts, failed]
    for _ in range(5000):
        pipeline.inject(1, bytes(12))
    rows = (await told(server, "log"))["messages"]
    assert len(rows) == 1000
    assert "messages were left out" in rows[-1]["text"]
    assert "parsed 0" in (await command(server, "log")).output


def test_a_message_of_the_program_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspection_module, "_LOG_CHARACTERS", 8)
    inspection = alone()
    pipeline = case("messages").pipeline()
    inspection.use(pipeline)
    said: list[str] = []
    inspection.say = said.append
    pipeline.inject(1, bytes([41]) + bytes(11))
    inspection.take_log()
    assert said[0] == "parsed 4"


async def test_packets_are_traced(inspected: Server) -> None:
    running = asyncio.ensure_future(command(inspected, "trace", "--port", "5", "--timeout", "60"))
    while not running.done():
        inspected.pipelines[0].inject(5, frame())
        await asyncio.sleep(0)
    output = (await running).output
    assert "received on port 5" in output
    assert "EntitiesIngress.hosts" in output


async def test_a_switch_that_is_another_or_none_is_named(server: Server, tmp_path: Path) -> None:
    absent = Server(f"unix:{tmp_path}/nobody")
    for where, device, status, words in (
        (absent, DEVICE, 3, ["no switch answers", "nobody", "--grpc"]),
        (server, 9, 2, [f"device {DEVICE}, not 9", "--device-id"]),
        (server, DEVICE, 2, [f"device {DEVICE}", "no program yet", "--program"]),
    ):
        done = await command(where, "tables", device=device)
        assert done.exit_code == status
        for word in words:
            assert word in done.stderr


def test_values_as_people_write_them() -> None:
    assert number(0x0A000001, 32, "hdr.ipv4.dst_addr") == "10.0.0.1"
    assert number(0x0A000001, 32, "color") == "0xa000001"
    assert number(2, 48) == "00:00:00:00:00:02"
    assert number(300, 9) == "300"
    assert list(span("2:4", 8, "x")) == [2, 3]
    assert list(span("6:", 8, "x")) == [6, 7]
    assert list(span("3", 8, "x")) == [3]
    with pytest.raises(SwitchError, match="FIRST:END"):
        span("-1", 8, "x")
    assert runs([5, 5, 0], 3) == [(3, 4, 5), (5, 5, 0)]


def test_a_switch_says_how_its_program_is_executed() -> None:
    ports, said = FakePorts(), list[str]()
    inspection = alone(ports)
    inspection.say = said.append
    ports.execution = "interpreted, being compiled"
    inspection.use(Pipeline.load(files(ENTITIES)[1].read_bytes()))
    ports.execution = "compiled"
    for _ in range(2):
        inspection.look()
    assert said == ["program entities.p4: interpreted, being compiled", "program entities.p4: compiled"]


async def test_stats_say_what_is_not_fused() -> None:
    inspection = alone()
    inspection.use(Pipeline.load(unpacked(WIDTHS).read_bytes()))
    answer = await inspection.GetPorts(switch_pb2.GetPortsRequest(), None)  # type: ignore[arg-type]
    lanes = "I.mean: 8 values from l.v0 on: a value may not fit into 64 bits where its exact value counts"
    assert answer.pipeline.scalar[0] == lanes
    counts = dict.fromkeys(("received", "emitted", "dropped", "aborted"), 0)
    pipeline = {"program": "widths.p4", "execution": "compiled", "scalar": [lanes], **counts}
    console = Console(file=StringIO())
    print_stats(console, {"ports": None, "impairments": [], "pipeline": pipeline, "actions": []})
    assert f"not fused: {lanes}\n" in console.file.getvalue()  # type: ignore[attr-defined]
