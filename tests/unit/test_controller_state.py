# SPDX-License-Identifier: Apache-2.0
"""Desired state as values, the difference between two states, and their conversion to finsy and back."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
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
from railweave.controller.tables import Endpoint, mac_number
from railweave.controller.trees import build
from railweave.p4src.artifacts import AGGREGATION, PROFILES, artifact
from railweave.topologies.clos import leaf_spine
from railweave.topologies.model import Plane

GROUP_IP = int(IPv4Address("10.1.255.1"))


def two_levels() -> tuple[Plane, Aggregation, AddressPlan]:
    (plane,) = leaf_spine(racks=2, hosts=2, spines=1, rails=("ina",)).planes
    ranks = dict(enumerate(plane.nics))
    tree = build(plane, ranks, [switch.name for switch in plane.switches])
    hosts = {r: Endpoint(mac_number(n.mac), int(IPv4Address(n.address)), 5000) for r, n in ranks.items()}
    return plane, Aggregation(3, "ina", tree, GROUP_IP, hosts), AddressPlan(plane)


def test_addresses_are_of_the_last_24_and_nobody_elses() -> None:
    _, _, plan = two_levels()
    chosen: list[int] = []
    for _ in range(251):
        chosen.append(plan.choose(chosen))
    with pytest.raises(Refused, match=r"all 251 group addresses of plane 'ina' are taken"):
        plan.choose(chosen)
    everybody = [*chosen, *(endpoint.ip for endpoint in plan.switches.values())]
    assert len(set(everybody)) == 254
    assert {ip >> 8 for ip in everybody} == {GROUP_IP >> 8}


@pytest.mark.parametrize("lanes", PROFILES[AGGREGATION])
def test_every_entry_passes_p4info_and_comes_back_equal(lanes: int) -> None:
    program = artifact(lanes)
    schema = fy.P4Schema(program.p4info_path)
    plane, group, plan = two_levels()
    state = desired.merge(
        [
            desired.forwarding(
                routes(plane)["leaf1"], plan.switches["leaf1"], frozenset({plane.trunks[0].lower_port})
            ),
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
    """Draw a state that a switch can hold: no two entries have the same key."""
    by_key = {entry.key: entry for entry in draw(st.lists(entries))}
    by_group = {multicast.group: multicast for multicast in draw(st.lists(multicasts))}
    return SwitchState(frozenset(by_key.values()), frozenset(by_group.values()))


def apply(state: SwitchState, updates: Sequence[Update]) -> SwitchState:
    """Return the state after updates. Like a switch, demand INSERT for new and MODIFY for existing values."""
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


def test_members_are_deleted_first_and_written_last_and_notes_wait_for_nothing() -> None:
    _, group, plan = two_levels()
    state = desired.aggregation(group, "leaf1", SlotRange(0, 16, 1), plan.switches)
    writes = difference(SwitchState(), state)
    deletes = difference(state, SwitchState())
    order = [u.value.table if isinstance(u.value, Entry) else "multicast" for u in writes]
    assert order[0] == "multicast"
    assert order[-3:] == ["members"] * 3
    assert [u.value for u in deletes] == [u.value for u in reversed(writes)]
    notes = desired.memory([Serials(0, 16, 99)], last_group=3)
    assert difference(state, notes)[0].kind == "INSERT"
    assert difference(desired.merge([state, notes]), state)[-1].kind == "DELETE"
    assert difference(notes, state)[-1] == Update("DELETE", next(iter(notes.entries)))


def knowledge(state: SwitchState, rounds: int) -> SlotSpace:
    """Return a new controller's slots, as read from a switch. Its groups have done `rounds` rounds."""
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
    """After each update the switch's state is enough for serial numbers to increase, never decrease."""
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
