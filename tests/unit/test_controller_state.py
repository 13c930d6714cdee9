# SPDX-License-Identifier: Apache-2.0
"""Desired state as values, the difference between two states, and their way through finsy and back."""

from __future__ import annotations

import itertools
from ipaddress import IPv4Address

import finsy as fy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from railweave.controller import desired, tables, wire
from railweave.controller.addresses import AddressPlan
from railweave.controller.desired import Aggregation, Loss
from railweave.controller.errors import Refused
from railweave.controller.routes import routes
from railweave.controller.slots import Serials, SlotRange, SlotSpace, newer
from railweave.controller.state import Entry, Multicast, SwitchState, Update, difference, fields
from railweave.controller.tables import SPREAD_BASE, Endpoint, mac_number
from railweave.controller.trees import build
from railweave.p4src.artifacts import AGGREGATION, PROFILES, artifact
from railweave.topologies.model import Nic, Plane, Switch, Trunk
from railweave.topologies.planes import planes

IP = {name: int(IPv4Address(name)) for name in ("10.1.0.1", "10.1.0.2", "10.1.255.1")}


def one_switch() -> tuple[Plane, Aggregation, AddressPlan]:
    plane = planes(2, ("ina",)).plane("ina")
    ranks = dict(enumerate(plane.nics))
    tree = build(plane, ranks, [plane.switches[0].name])
    hosts = {r: Endpoint(mac_number(n.mac), int(IPv4Address(n.address)), 4000 + r) for r, n in ranks.items()}
    return plane, Aggregation(7, "ina", tree, IP["10.1.255.1"], hosts), AddressPlan(plane)


def two_levels() -> tuple[Plane, Aggregation, AddressPlan]:
    nics = tuple(
        Nic(f"h{i}", f"h{i}-ina", f"10.1.0.{i}", f"02:00:00:01:00:0{i}", f"leaf{(i + 1) // 2}", 2 - i % 2)
        for i in (1, 2, 3, 4)
    )
    trunks = (Trunk("leaf1", 9, "spine", 1), Trunk("leaf2", 8, "spine", 2))
    switches = tuple(Switch(name, "127.0.0.1:1") for name in ("leaf1", "leaf2", "spine"))
    plane = Plane("ina", "ina", "10.1.0.0/16", 0, switches, nics, trunks)
    ranks = dict(enumerate(nics))
    tree = build(plane, ranks, ["leaf1", "leaf2", "spine"])
    hosts = {r: Endpoint(mac_number(n.mac), int(IPv4Address(n.address)), 5000) for r, n in ranks.items()}
    return plane, Aggregation(3, "ina", tree, IP["10.1.255.1"], hosts), AddressPlan(plane)


def rows(state: SwitchState, table: str) -> list[tuple[dict[str, int], str, dict[str, int]]]:
    found = [(dict(e.match), e.action, dict(e.params)) for e in state.entries if e.table == table]
    return sorted(found, key=lambda row: sorted(row[0].items()))


def hosts(state: SwitchState) -> list[tuple[dict[str, int], str, dict[str, int]]]:
    return [row for row in rows(state, "members") if row[1] == "contributor"]


def test_one_switch_adds_two_hosts() -> None:
    _, group, plan = one_switch()
    state = desired.aggregation(group, "s-ina", SlotRange(512, 512, 9), plan.switches)
    assert rows(state, "members")[1] == (
        {"group": 7, "ingress_port": 2, "child": 1, "source": IP["10.1.0.2"]},
        "contributor",
        {
            "child_bit": 2,
            "all_children": 3,
            "slot_base": 1024,
            "slot_mask": 1023,
            "start": 9,
            "is_root": 1,
            "mcast_group": 8,
            "spread_group": 8,
        },
    )
    assert rows(state, "replicas")[0] == (
        {"group": 7, "egress_rid": 1},
        "readdress",
        {
            "child": 0,
            "src_mac": 0x02FE0A01FF01,
            "dst_mac": 0x020000010001,
            "src_ip": IP["10.1.255.1"],
            "dst_ip": IP["10.1.0.1"],
            "udp_port": 4000,
        },
    )
    assert rows(state, "virtual_addresses") == [
        ({"address": IP["10.1.255.1"]}, "owned", {"mac": 0x02FE0A01FF01})
    ]
    assert rows(state, "uplinks") == []
    assert state.multicasts == {Multicast(8, frozenset({(1, 1), (2, 2)}))}


def test_a_leaf_passes_sums_up_and_results_down() -> None:
    _, group, plan = two_levels()
    slots = SlotRange(0, 16, 1)
    leaf, spine = (desired.aggregation(group, name, slots, plan.switches) for name in ("leaf2", "spine"))
    me, above = plan.switches["leaf2"], plan.switches["spine"]
    assert rows(leaf, "uplinks") == [
        (
            {"group": 3},
            "uplink",
            {
                "port": 8,
                "child": 1,
                "src_mac": me.mac,
                "dst_mac": above.mac,
                "src_ip": me.ip,
                "dst_ip": above.ip,
            },
        )
    ]
    parent = [row for row in rows(leaf, "members") if row[1] == "parent"]
    assert parent == [
        (
            {"group": 3, "ingress_port": 8, "child": 1, "source": above.ip},
            "parent",
            {"slot_base": 0, "slot_mask": 31, "start": 1, "mcast_group": 4},
        )
    ]
    ways = [(row[2]["is_root"], row[2]["mcast_group"], row[2]["spread_group"]) for row in hosts(leaf)]
    assert ways == [(0, 4, 4 + SPREAD_BASE)] * 2
    children = frozenset({(1, 1), (2, 2)})
    assert leaf.multicasts == {Multicast(4, children), Multicast(4 + SPREAD_BASE, children | {(8, 32)})}
    (up,) = [row for row in rows(leaf, "replicas") if row[0]["egress_rid"] == 32]
    addresses = {"src_mac": me.mac, "dst_mac": above.mac, "src_ip": me.ip, "dst_ip": above.ip}
    assert up[1:] == ("readdress", {"child": 1, "udp_port": tables.INA_UDP_PORT, **addresses})
    assert [row[0]["source"] for row in rows(spine, "members")] == [plan.switches["leaf1"].ip, me.ip]
    assert [row[2]["dst_ip"] for row in rows(spine, "replicas")] == [plan.switches["leaf1"].ip, me.ip]
    assert {row[2]["udp_port"] for row in rows(spine, "replicas")} == {tables.INA_UDP_PORT}
    assert rows(spine, "virtual_addresses") == []
    assert spine.multicasts == {Multicast(4, frozenset({(1, 1), (2, 2)}))}


def test_forwarding_reaches_every_nic_and_floods_along_a_tree() -> None:
    plane, _, plan = two_levels()
    way = routes(plane)["leaf1"]
    state = desired.forwarding(way, plan.switches["leaf1"], way.tree)
    ports = {match["destination"]: params["port"] for match, _, params in rows(state, "mac_table")}
    assert ports == {0x020000010001: 1, 0x020000010002: 2, 0x020000010003: 9, 0x020000010004: 9}
    assert state.multicasts == {Multicast(tables.FLOOD_GROUP, frozenset({(1, 0), (2, 0), (9, 0)}))}
    assert rows(state, "virtual_addresses")[0][0] == {"address": plan.switches["leaf1"].ip}


def test_addresses_are_of_the_last_24_and_nobody_elses() -> None:
    _, _, plan = two_levels()
    chosen: list[int] = []
    for _ in range(251):
        chosen.append(plan.choose(chosen))
    with pytest.raises(Refused, match=r"all 251 group addresses of plane 'ina' are taken"):
        plan.choose(chosen)
    everybody = [*chosen, *(endpoint.ip for endpoint in plan.switches.values())]
    assert len(set(everybody)) == 254
    assert {ip >> 8 for ip in everybody} == {IP["10.1.255.1"] >> 8}


@pytest.mark.parametrize("lanes", PROFILES[AGGREGATION])
def test_every_entry_passes_p4info_and_comes_back_equal(lanes: int) -> None:
    program = artifact(lanes)
    schema = fy.P4Schema(program.p4info_path)
    plane, group, plan = two_levels()
    state = desired.merge(
        [
            desired.forwarding(routes(plane)["leaf1"], plan.switches["leaf1"], frozenset({9})),
            desired.aggregation(group, "leaf1", SlotRange(16, 16, 2**32 - 1), plan.switches),
            desired.losses([Loss(1, "ingress", 0.01), Loss(2, "egress", 1.0)]),
            desired.memory([Serials(64, 32, 77)], last_group=3),
        ]
    )
    updates = difference(SwitchState(), state)
    entities = [wire.encode(update).encode_update(schema).entity for update in updates]
    back = wire.decode((fy.p4entity.decode_entity(e, schema) for e in entities), frozenset())
    assert back == state


def test_notes_of_serial_numbers_match_no_packet_and_read_back() -> None:
    note = tables.members_serials(Serials(1024, 512, 99), last_group=12)
    assert dict(note.match)["group"] == 0
    assert dict(note.match)["ingress_port"] == 0
    assert tables.read_members_serials(note) == (Serials(1024, 512, 99), 12)
    assert tables.read_members(note) is None
    member = tables.members(5, 1, 0, 9, SlotRange(8, 8, 3), children=2, is_root=True)
    assert tables.read_members_serials(member) is None
    assert tables.read_members(member) == (5, SlotRange(8, 8, 3))


@pytest.mark.parametrize(("probability", "threshold"), [(0.01, 42949673), (0.5, 2**31), (1.0, 2**32 - 1)])
def test_loss_is_a_threshold_of_32_bits(probability: float, threshold: int) -> None:
    assert dict(tables.injector("ingress", 1, probability).params) == {"threshold": threshold}
    assert desired.losses([Loss(1, "ingress", 0.0)]) == SwitchState()


entries = st.builds(
    lambda table, key, value: Entry(table, fields({"k": key}), "a", fields({"p": value})),
    st.sampled_from(["members", "replicas", "mac_table", "injector_ingress"]),
    st.integers(0, 3),
    st.integers(0, 2),
)
multicasts = st.builds(
    lambda group, ports: Multicast(group, frozenset((port, 1) for port in ports)),
    st.integers(1, 3),
    st.sets(st.integers(1, 3)),
)


@st.composite
def states(draw: st.DrawFn) -> SwitchState:
    """A state that a switch can hold: no two entries with one key."""
    by_key = {entry.key: entry for entry in draw(st.lists(entries))}
    by_group = {multicast.group: multicast for multicast in draw(st.lists(multicasts))}
    return SwitchState(frozenset(by_key.values()), frozenset(by_group.values()))


def apply(state: SwitchState, updates: list[Update]) -> SwitchState:
    """What a switch makes of updates; it insists on INSERT for what is new and MODIFY for what is there."""
    held = {e.key: e for e in state.entries} | {("multicast", m.group): m for m in state.multicasts}
    for update in updates:
        value = update.value
        key = value.key if isinstance(value, Entry) else ("multicast", value.group)
        assert (key in held) == (update.kind != "INSERT")
        if update.kind == "DELETE":
            del held[key]
        else:
            held[key] = value
    return SwitchState(
        frozenset(v for v in held.values() if isinstance(v, Entry)),
        frozenset(v for v in held.values() if isinstance(v, Multicast)),
    )


@given(actual=states(), wanted=states())
def test_the_difference_leads_there_and_is_empty_then(actual: SwitchState, wanted: SwitchState) -> None:
    updates = difference(actual, wanted)
    assert apply(actual, updates) == wanted
    assert difference(wanted, wanted) == []
    touched = [update.value for update in updates]
    assert len(touched) == len(set(touched))
    assert not set(touched) & (actual.entries & wanted.entries)


def test_members_are_deleted_first_and_written_last() -> None:
    _, group, plan = two_levels()
    state = desired.aggregation(group, "leaf1", SlotRange(0, 16, 1), plan.switches)
    writes = difference(SwitchState(), state)
    deletes = difference(state, SwitchState())
    order = [u.value.table if isinstance(u.value, Entry) else "multicast" for u in writes]
    assert order[0] == "multicast"
    assert order[-3:] == ["members"] * 3
    assert [u.value for u in deletes] == [u.value for u in reversed(writes)]


def knowledge(state: SwitchState, rounds: int) -> SlotSpace:
    """What a new controller makes of a switch whose groups have so many rounds behind them."""
    space = SlotSpace("leaf1", 64)
    for entry in state.entries:
        if note := tables.read_members_serials(entry):
            space.remember([note[0]])
    for entry in state.entries:
        if found := tables.read_members(entry):
            space.adopt(*found)
    for group in space.taken:
        space.release(group, rounds)
    return space


def test_a_controller_may_die_between_any_two_updates() -> None:
    """At each point the switch says enough for serial numbers to go on, never back."""
    _, group, plan = two_levels()

    def held(space: SlotSpace, running: bool) -> SwitchState:
        parts = [desired.memory(space.serials(), last_group=3)]
        if running:
            parts.append(desired.aggregation(group, "leaf1", space.taken[3], plan.switches))
        return desired.merge(parts)

    space = SlotSpace("leaf1", 64)
    space.remember([Serials(0, 64, 5000)])
    states = [held(space, running=False)]
    for size in (16, 64, 32):
        taken = space.allocate(3, size)
        states.append(held(space, running=True))
        space.release(3, rounds=7000)
        states.append(held(space, running=False))
        assert space.allocate(4, size).start == taken.start + 7000
        space.release(4)
    floor = [5000] * 64
    for before, after in itertools.pairwise(states):
        updates = difference(before, after)
        for done in range(len(updates) + 1):
            space = knowledge(apply(before, updates[:done]), rounds=7000)
            starts = [space.allocate(slot, 1).start for slot in range(64)]
            assert all(not newer(least, start) for start, least in zip(starts, floor, strict=True))
        floor = starts


def test_members_wait_for_what_they_point_to_and_notes_for_nothing() -> None:
    _, group, plan = two_levels()
    state = desired.aggregation(group, "leaf1", SlotRange(0, 16, 1), plan.switches)
    notes = desired.memory([Serials(0, 16, 99)], last_group=3)
    assert difference(state, notes)[0].kind == "INSERT"
    assert difference(desired.merge([state, notes]), state)[-1].kind == "DELETE"
    assert difference(notes, state)[-1] == Update("DELETE", next(iter(notes.entries)))
