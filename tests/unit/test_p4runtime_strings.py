# SPDX-License-Identifier: Apache-2.0
"""Types that are translated to strings: the names that controllers use, and the program's numbers."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import finsy as fy
import p4runtime_clients
import pytest
from finsy.p4entity import P4ValueSetMember
from finsy.proto import p4i, p4r
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st
from p4runtime_clients import DEVICE, ENTITIES, SCHEMAS, A, Client, Config, Server, client, codes
from p4runtime_damage import Batch, changes, damage
from p4runtime_entities import frame

from railweave.switch.inspect.client import SwitchClient
from railweave.switch.inspect.tables import tables
from railweave.switch.p4runtime.batches import Batch as WriteBatch
from railweave.switch.p4runtime.device import Device
from railweave.switch.p4runtime.errors import Code, Refused
from railweave.switch.p4runtime.roles import Scope
from railweave.switch.p4runtime.strings import MAX_STRING_BYTES
from railweave.switch.pipeline import Digest, Pipeline

INSERT, MODIFY, DELETE = p4r.Update.INSERT, p4r.Update.MODIFY, p4r.Update.DELETE
MAPPINGS = '@p4runtime_translation_mappings({ { "" , 0 }, {"CPU", 9w510}, {"a \\"b\\"", 0x1F}, })'
MAPPED = {b"", b"CPU", b'a "b"'}
PORT_BITS = 9


def typed(p4info: p4i.P4Info, parts: object, name: str, type_name: str, *annotations: str) -> None:
    """Give the part with this name a type that is translated to strings, in the form that p4c writes."""
    for part in parts:  # type: ignore[attr-defined]
        if part.name == name:
            part.ClearField("bitwidth")
            part.type_name.name = type_name
    new = p4info.type_info.new_types[type_name]
    new.translated_type.sdn_string.SetInParent()
    new.annotations[:] = annotations


def described(*annotations: str) -> p4i.P4Info:
    """Return the P4Info of `entities`, with strings for ports, for Ethernet types and for a single bit."""
    p4info = p4i.P4Info()
    p4info.CopyFrom(SCHEMAS[ENTITIES].p4info)
    for action in p4info.actions:
        typed(p4info, action.params, "port", "port_t", *annotations)
        typed(p4info, action.params, "class", "class_t")
    for table in p4info.tables:
        if table.preamble.alias == "policy":
            typed(p4info, table.match_fields, "meta.ingress", "port_t", *annotations)
            typed(p4info, table.match_fields, "meta.marked", "flag_t")
        if table.preamble.alias == "classified":
            typed(p4info, table.match_fields, "hdr.ethernet.type", "type_t")
    for header, port in zip(p4info.controller_packet_metadata, ("ingress_port", "egress_port"), strict=True):
        typed(p4info, header.metadata, port, "port_t", *annotations)
    typed(p4info, p4info.value_sets[0].match, "", "type_t")
    p4info.type_info.structs["learned_t"].members[1].type_spec.new_type.name = "port_t"
    return p4info


P4INFO = described(MAPPINGS)
SCHEMA = fy.P4Schema(P4INFO)


def device(p4info: p4i.P4Info = P4INFO, json: bytes | None = None) -> Device:
    return p4runtime_clients.device(ENTITIES, p4info, json)


def write(to: Device, kind: p4r.Update.Type.ValueType, *entities: fy.P4Entity | p4r.Entity) -> None:
    for entity in entities:
        encoded = entity if isinstance(entity, p4r.Entity) else entity.encode(SCHEMA)
        to.write(p4r.Update(type=kind, entity=encoded))


def refusal(to: Device, kind: p4r.Update.Type.ValueType, entity: fy.P4Entity | p4r.Entity) -> Code:
    with pytest.raises(Refused) as refused:
        write(to, kind, entity)
    return refused.value.code


def read(of: Device, *patterns: fy.P4Entity) -> list[str]:
    found = (entity for pattern in patterns for entity in of.read(pattern.encode(SCHEMA)))
    return sorted(str(entity) for entity in found)


def texts(*entities: fy.P4Entity) -> list[str]:
    return sorted(str(entity.encode(SCHEMA)) for entity in entities)


def host(port: str, destination: int = A) -> fy.P4TableEntry:
    match = fy.P4TableMatch(destination=destination)
    return fy.P4TableEntry("hosts", match=match, action=fy.P4TableAction("host_port", port=port))


def policy(port: str, **match: object) -> fy.P4TableEntry:
    action = fy.P4TableAction("to_port", port=port)
    return fy.P4TableEntry("policy", match=fy.P4TableMatch(marked="0", **match), action=action, priority=7)


def spread(*ports: str) -> fy.P4TableEntry:
    shot = fy.P4IndirectAction([(1, fy.P4TableAction("to_port", port=port)) for port in ports])
    return fy.P4TableEntry("spread", match=fy.P4TableMatch(destination=(A, 24)), action=shot)


def default(port: str) -> fy.P4TableEntry:
    action = fy.P4TableAction("to_port", port=port)
    return fy.P4TableEntry("policy", action=action, is_default_action=True)


def classified(kind: str) -> fy.P4TableEntry:
    match = fy.P4TableMatch(type=kind)
    return fy.P4TableEntry("classified", match=match, action=fy.P4IndirectAction(member_id=4))


CLASSIFY = fy.P4TableAction("classify", **{"class": "c"})
CLASS = fy.P4ActionProfileMember("classes", member_id=4, action=CLASSIFY)
KINDS = [P4ValueSetMember({"": kind}) for kind in ("ip", "34997")]
TYPES = fy.P4ValueSetEntry("marked_types", members=KINDS)
DEFAULT = default("e4")


def host_port(of: Device, destination: int = A) -> int:
    entries = of.pipeline.tables["EntitiesIngress.hosts"].entries()
    return next(int(e.target.params[0]) for e in entries if e.matches[0].value == destination)


def numbers(of: Pipeline) -> list[str]:
    """Return the entries with the numbers that packets use."""
    names = ("EntitiesIngress.hosts", "EntitiesIngress.policy", "EntitiesIngress.spread")
    return sorted(str((e.matches, e.target)) for name in names for e in of.tables[name].entries())


def used(of: Device, type_name: str = "port_t") -> set[bytes]:
    """Return the strings that have a number, except the strings that the annotation maps."""
    return set(of.translation.types[type_name]._numbers) - MAPPED


def test_tables_that_share_a_type_mean_the_same_number() -> None:
    one = device()
    write(one, INSERT, host("e0"), policy("e1", ingress="e0"), CLASS, classified("ip"))
    write(one, MODIFY, TYPES)
    [entry] = one.pipeline.tables["EntitiesIngress.policy"].entries()
    assert entry.matches[1].value == host_port(one) != entry.target.params[0]
    write(one, DELETE, host("e0"))
    assert b"e0" in used(one)  # the other table uses it
    write(one, INSERT, host("e0"))
    assert host_port(one) == entry.matches[1].value
    [entry] = one.pipeline.tables["EntitiesIngress.classified"].entries()
    packet = frame(kind=entry.matches[0].value)
    write(one, MODIFY, fy.P4TableEntry("policy", action=fy.P4TableAction("drop"), is_default_action=True))
    marked = fy.P4TableEntry("policy", match=fy.P4TableMatch(marked="1"), priority=1)
    marked.action = fy.P4TableAction("to_port", port="3")
    write(one, INSERT, marked)
    assert [port for port, _ in one.pipeline.inject(1, packet)] == [3]  # the value set knows the type, too


def test_decimal_numbers_stand_for_themselves_and_mapped_strings_for_theirs() -> None:
    one = device()
    for string, number in (("7", 7), ("CPU", 510), ("", 0), ('a "b"', 31)):
        write(one, INSERT, host(string))
        assert (host_port(one), read(one, fy.P4TableEntry("hosts"))) == (number, texts(host(string)))
        write(one, DELETE, host(string))
    for string in ("007", "512", "-1", "\u0667"):  # no canonical decimal number of 9 bits
        write(one, INSERT, host(string))
        assert read(one, fy.P4TableEntry("hosts")) == texts(host(string))
        write(one, DELETE, host(string))
    for string in ("510", "31"):
        assert refusal(one, INSERT, host(string)) is Code.FAILED_PRECONDITION


def test_an_entry_that_keeps_its_action_keeps_its_strings() -> None:
    switch = device()
    write(switch, INSERT, host("e0"))
    entry = host("e0").encode(SCHEMA)
    entry.table_entry.ClearField("action")
    write(switch, MODIFY, entry)
    assert used(switch) == {b"e0"}
    assert read(switch, fy.P4TableEntry("hosts")) == texts(host("e0"))


def test_numbers_are_used_again_and_run_out() -> None:
    one = device()
    free = [n for n in range(1 << PORT_BITS) if n not in (0, 31, 510)]
    write(one, INSERT, *(host(f"e{n}", n) for n in range(64)))
    # Small numbers come last, because ports use them.
    assert sorted(host_port(one, n) for n in range(64)) == free[-64:]
    ports = {n: host_port(one, n) for n in range(64)}
    write(one, DELETE, host("", 5), host("", 9))
    write(one, INSERT, host("new", 9), host("newer", 5))
    assert {host_port(one, 5), host_port(one, 9)} == {ports[5], ports[9]}
    write(one, DELETE, host("", 5), host("", 9))
    write(one, INSERT, host(f"{ports[5]}", 5), policy("8"))
    write(one, DELETE, policy(""))
    write(one, INSERT, host("newest", 9), policy("last"))  # gets no number that is a string in use
    assert sorted(host_port(one, n) for n in range(64)) == free[-64:]
    [entry] = one.pipeline.tables["EntitiesIngress.policy"].entries()
    assert entry.target.params == (free[-65],)
    write(one, DELETE, policy(""))
    write(one, INSERT, policy("1"))
    flag = fy.P4TableEntry("policy", action=fy.P4TableAction("drop"), priority=1)
    flag.match = fy.P4TableMatch(marked="maybe")
    write(one, INSERT, flag)  # "0" stands for itself, so 1 is left
    flag.match = fy.P4TableMatch(marked="never")
    assert refusal(one, INSERT, flag) is Code.RESOURCE_EXHAUSTED
    write(one, DELETE, policy(""))
    write(one, INSERT, flag)
    assert used(one, "flag_t") == {b"maybe", b"never"}
    assert refusal(one, INSERT, policy("1")) is Code.FAILED_PRECONDITION  # "0": its number is used


@pytest.mark.parametrize("string", [b"", b"x" * (MAX_STRING_BYTES + 1), b"\xff\xfe"])
def test_malformed_strings_are_refused(string: bytes) -> None:
    one = device(described())
    entity = host("x").encode(SCHEMA)
    entity.table_entry.action.action.params[0].value = string
    assert refusal(one, INSERT, entity) is Code.INVALID_ARGUMENT
    write(one, INSERT, host("x" * MAX_STRING_BYTES))
    assert used(one) == {b"x" * MAX_STRING_BYTES}


def test_refused_writes_leave_nothing_behind_however_often() -> None:
    one = device()
    write(one, INSERT, *(host(f"e{n}", n) for n in range(64)))
    before = used(one)
    for number in range(600):
        assert refusal(one, INSERT, host(f"more{number}", 64)) is Code.RESOURCE_EXHAUSTED
        write(one, MODIFY, host(f"again{number}", 0))
    assert used(one) == before - {b"e0"} | {b"again599"}
    strings = one.translation.types["port_t"]
    held = (strings._numbers, strings._strings, strings._users, strings._released, one.translation._users)
    assert max(map(len, held)) <= 64 + 3  # 64 entries, and the mapped strings


NAMES = ("a", "b", "7", "CPU", "")
WRITES = [
    p4r.Update(type=kind, entity=entity.encode(SCHEMA)).SerializeToString()
    for entity in (
        *(entity for n in NAMES for entity in (host(n), policy(n, ingress=n), spread(n, "c"), default(n))),
        fy.P4TableEntry("policy", is_default_action=True),
        CLASS,
        classified("ip"),
        TYPES,
    )
    for kind in (INSERT, MODIFY, DELETE)
]


@settings(max_examples=100)
@given(st.lists(st.tuples(st.sampled_from(WRITES), changes), max_size=20))
def test_the_strings_that_have_numbers_are_those_that_are_read(batch: Batch) -> None:
    one = device()
    for message, damages in batch:
        with contextlib.suppress(DecodeError, Refused):
            one.write(p4r.Update.FromString(damage(message, damages)))
    everything = (fy.P4TableEntry(), default(""), fy.P4ActionProfileMember(), TYPES)
    entities = [entity for pattern in everything for entity in one.read(pattern.encode(SCHEMA))]
    found = {(strings, slot.value) for e in entities for slot, strings, _ in one.translation._slots(e)}
    for name, strings in one.translation.types.items():
        assert {string for of, string in found if of is strings} - MAPPED == used(one, name)


@pytest.mark.parametrize("atomicity", [p4r.WriteRequest.ROLLBACK_ON_ERROR, p4r.WriteRequest.DATAPLANE_ATOMIC])
async def test_a_batch_that_fails_leaves_strings_as_they_were(atomicity: int) -> None:
    one = device()
    kept = [host("a", 1), host("b", 2), policy("p", ingress="in"), spread("s", "t")]
    write(one, INSERT, *kept)
    before = numbers(one.pipeline)
    batch = [
        (DELETE, host("", 1)),
        (INSERT, host("c", 3)),
        (MODIFY, host("d", 2)),
        (MODIFY, policy("q", ingress="in")),
        (MODIFY, spread("u", "v")),
        (INSERT, policy("e", ingress="f")),
        (MODIFY, DEFAULT),
        (DELETE, policy("", ingress="nobody")),
    ]
    request = p4r.WriteRequest(atomicity=atomicity)  # type: ignore[arg-type]
    for kind, entity in batch:
        request.updates.add(type=kind, entity=entity.encode(SCHEMA))
    results = await WriteBatch(one, Scope()).write(request)
    assert [result.code for result in results if result] == [Code.ABORTED] * 7 + [Code.NOT_FOUND]
    assert used(one) == {b"a", b"b", b"p", b"in", b"s", b"t"}
    assert numbers(one.pipeline) == before
    assert read(one, fy.P4TableEntry()) == texts(*kept)


def test_a_read_in_progress_keeps_its_strings() -> None:
    one = device()
    write(one, INSERT, host("a"))
    view = one.snapshot()
    write(one, DELETE, host("a"))
    write(one, INSERT, host("b"))
    assert read(view, fy.P4TableEntry()) == texts(host("a"))


def test_numbers_of_the_programs_own_entries_are_given_to_no_string() -> None:
    program = json.loads(SCHEMAS[ENTITIES].p4blob)
    tables = (table for pipeline in program["pipelines"] for table in pipeline["tables"])
    table = next(table for table in tables if table["name"] == "EntitiesIngress.policy")
    to_port = table["action_ids"][table["actions"].index("EntitiesIngress.to_port")]
    table["default_entry"] |= {"action_id": to_port, "action_data": ["0x1ff"]}
    one = device(json=json.dumps(program).encode())
    assert read(one, DEFAULT) == texts(default("511"))
    write(one, INSERT, host("e0"))
    assert host_port(one) == 509  # 510 is mapped


def test_digests_carry_strings() -> None:
    one = device()
    write(one, INSERT, host("e0"), fy.P4DigestEntry("learned_t", max_list_size=2, max_timeout_ns=10))
    for port in (host_port(one), 5):
        one.digests.take(Digest("learned_t", (A, port)), 0)
    [found] = one.digests.due(0)
    assert [data.struct.members[1].bitstring for data in found.data] == [b"e0", b"5"]


def with_servers(*annotations: str) -> p4i.P4Info:
    """Return the P4Info with strings also for the key of `hosts`."""
    p4info = described()
    typed(p4info, p4info.tables[0].match_fields, "hdr.ethernet.destination", "server_t", *annotations)
    return p4info


def server_entry(name: bytes, **fields: object) -> p4r.Entity:
    entity = host("e0").encode(SCHEMA)
    entity.table_entry.match[0].exact.value = name
    for field, value in fields.items():
        setattr(entity.table_entry, field, value)
    return entity


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda p: typed(p, p.tables[4].match_fields, "meta.class", "class_t"), Code.UNIMPLEMENTED),
        (lambda p: typed(p, p.tables[4].match_fields, "meta.marked", "port_t"), Code.INVALID_ARGUMENT),
        (
            lambda p: typed(p, p.controller_packet_metadata[0].metadata, "reason", "r_t"),
            Code.INVALID_ARGUMENT,
        ),
        *(
            (
                lambda p, text=text: typed(p, (), "", "port_t", "@p4runtime_translation_mappings" + text),
                Code.INVALID_ARGUMENT,
            )
            for text in (
                '({{"a", 512}})',
                '({{"a", 1}, {"a", 2}})',
                '({{"a", 1}, {"b", 1}})',
                "({{a, 1}})",
                '("a")',
                f'({{{{"{"x" * 257}", 1}}}})',
            )
        ),
    ],
)
def test_p4infos_that_cannot_be_served_are_refused(change: Callable[[p4i.P4Info], None], code: Code) -> None:
    p4info = described()
    change(p4info)
    with pytest.raises(Refused) as refused:
        device(p4info)
    assert refused.value.code is code


def test_registers_of_strings_are_refused() -> None:
    p4info = described()
    p4info.registers[0].type_spec.new_type.name = "port_t"
    one = device(p4info)
    entry = p4r.RegisterEntry(register_id=p4info.registers[0].preamble.id)
    assert refusal(one, MODIFY, p4r.Entity(register_entry=entry)) is Code.UNIMPLEMENTED


@asynccontextmanager
async def pushed(server: Server, p4info: p4i.P4Info = P4INFO) -> AsyncIterator[Client]:
    async with client(server, program=ENTITIES) as one:
        await one.arbitrate()
        await one.set_pipeline(Config.VERIFY_AND_COMMIT, p4info=p4info)
        yield one


async def write_to(one: Client, *updates: tuple[int, fy.P4Entity]) -> list[str]:
    encoded = (p4r.Update(type=kind, entity=entity.encode(SCHEMA)) for kind, entity in updates)  # type: ignore[arg-type]
    return codes(await one.write(*encoded))


async def test_packets_carry_strings(server: Server) -> None:
    async with pushed(server) as one:
        [pipeline] = server.pipelines
        to_controller = fy.P4TableAction("to_controller", reason=9)
        entry = fy.P4TableEntry("policy", match=fy.P4TableMatch(marked="0"), action=to_controller, priority=1)
        hosts = [(INSERT, host(name, n)) for n, name in enumerate(("dropped", "e0"))]  # 511 is no port
        assert await write_to(one, (INSERT, entry), *hosts) == []
        known = pipeline.tables["EntitiesIngress.hosts"].entries()
        number = int(known[1].target.params[0])
        for ingress, string in ((number, b"e0"), (5, b"5"), (31, b'a "b"')):
            pipeline.inject(ingress, frame())
            packet = (await one.stream.read()).packet  # type: ignore[union-attr]
            assert [m.value for m in packet.metadata] == [string, b"\x09"]
        sent: asyncio.Queue[int] = asyncio.Queue()
        pipeline.connect(lambda port, data: [sent.put_nowait(out) for out, _ in pipeline.inject(port, data)])
        for string, egress in ((b"e0", number), (b"6", 6), (b'a "b"', 31), (b"nobody", None)):
            metadata = [p4r.PacketMetadata(metadata_id=1, value=string)]
            metadata.append(p4r.PacketMetadata(metadata_id=2, value=b"\0"))
            request = p4r.PacketOut(payload=frame(), metadata=metadata)
            await one.stream.write(p4r.StreamMessageRequest(packet=request))
            if egress is not None:
                assert await sent.get() == egress
        error = (await one.stream.read()).error  # type: ignore[union-attr]
        assert (error.canonical_code, error.packet_out.packet_out) == (Code.INVALID_ARGUMENT, request)


async def test_idle_notifications_carry_strings(server: Server) -> None:
    async with pushed(server, with_servers()) as one:
        entries = server_entry(b"a"), server_entry(b"b", idle_timeout_ns=1)
        assert await one.write(*(p4r.Update(type=INSERT, entity=entity) for entity in entries)) == []
        told = (await one.stream.read()).idle_timeout_notification  # type: ignore[union-attr]
        assert [entry.match[0].exact.value for entry in told.table_entry] == [b"b"]


async def test_tables_are_shown_with_strings(server: Server) -> None:
    async with pushed(server) as one:
        assert await write_to(one, (INSERT, policy("e1", ingress="e0"))) == []
        with SwitchClient(server.address, DEVICE) as reader:
            [table] = await asyncio.to_thread(tables, reader, "policy")
        [entry] = table["entries"]
        assert entry["match"]["meta.ingress"] == {"kind": "optional", "value": "e0"}
        assert (entry["text"]["meta.ingress"], entry["call"]) == ("'e0'", "to_port(port='e1')")
