# SPDX-License-Identifier: Apache-2.0
"""Trees of one to three levels, tested with properties that any tree must have and with examples."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace

import pytest

from railweave.controller import trees
from railweave.controller.errors import Refused
from railweave.controller.tree import Contributor, Tree
from railweave.p4src.config import SOURCE_ROOT
from railweave.topologies.clos import fat_tree, leaf_spine
from railweave.topologies.model import Nic, Plane, Switch, Topology, Trunk


def plane(
    leaves: dict[str, int], trunks: tuple[Trunk, ...] = (), others: tuple[str, ...] = ()
) -> tuple[Plane, dict[int, Nic]]:
    """Return a plane with the given number of hosts per leaf, and its NICs by rank."""
    places = [(leaf, port) for leaf, hosts in leaves.items() for port in range(1, hosts + 1)]
    nics = tuple(
        Nic(f"h{n}", f"h{n}-ina", f"10.1.0.{n}", f"02:00:00:01:00:{n:02x}", leaf, port)
        for n, (leaf, port) in enumerate(places, 1)
    )
    switches = tuple(Switch(name, "127.0.0.1:1") for name in (*leaves, *others))
    return Plane("ina", "ina", "10.1.0.0/16", 0, switches, nics, trunks), dict(enumerate(nics))


LEAF_SPINE = (
    Trunk("leaf1", 101, "spine1", 1),
    Trunk("leaf2", 101, "spine1", 2),
    Trunk("leaf1", 102, "spine2", 1),
    Trunk("leaf2", 102, "spine2", 2),
)


def names(value: Plane) -> list[str]:
    return [switch.name for switch in value.switches]


def check(tree: Tree, value: Plane, ranks: dict[int, Nic]) -> None:
    """Check the properties of any tree: every rank once, the same child numbers on both ends, real links."""
    found = [c.rank for node in tree.nodes for c in node.contributors if c.rank is not None]
    assert sorted(found) == sorted(ranks)
    links = {(t.lower, t.lower_port, t.upper, t.upper_port) for t in value.trunks}
    links |= {(upper, up, lower, low) for lower, low, upper, up in links}
    for node in tree.nodes:
        assert [c.child for c in node.contributors] == list(range(len(node.contributors)))
        assert 1 <= len(node.contributors) <= trees.MAX_FAN_IN
        for c in node.contributors:
            if c.rank is not None:
                assert (ranks[c.rank].switch, ranks[c.rank].port) == (node.switch, c.port)
            else:
                lower = tree.node(c.switch or "")
                assert lower.parent
                assert (lower.parent.switch, lower.parent.child) == (node.switch, c.child)
                assert (node.switch, c.port, lower.switch, lower.parent.port) in links
    assert tree.root.parent is None
    assert sum(node.parent is None for node in tree.nodes) == 1


def two_racks(*hosts: int, **changes: object) -> tuple[Plane, dict[int, Nic]]:
    """Return two racks of some hosts each, below two spines."""
    racks = {f"leaf{number}": count for number, count in enumerate(hosts, 1)}
    value, ranks = plane(racks, LEAF_SPINE, ("spine1", "spine2"))
    return replace(value, **changes), ranks  # type: ignore[arg-type]


def test_one_switch_is_the_root() -> None:
    value, ranks = plane({"s": 4})
    tree = trees.build(value, ranks, names(value))
    check(tree, value, ranks)
    assert [node.switch for node in tree.nodes] == ["s"]
    assert [tree.depth(rank) for rank in ranks] == [1, 1, 1, 1]
    assert tree.place(2)[1] == Contributor(child=2, port=3, rank=2)


def test_two_racks_join_at_a_usable_spine_with_little_load() -> None:
    value, ranks = two_racks(4, 3)
    for usable, load, root in (
        (names(value), {}, "spine1"),
        (names(value), {"spine1": 1}, "spine2"),
        (names(value), {"spine1": 1, "spine2": 2}, "spine1"),
        (["leaf1", "leaf2", "spine2"], {}, "spine2"),
    ):
        tree = trees.build(value, ranks, usable, load)
        check(tree, value, ranks)
        assert tree.root.switch == root
        assert {tree.depth(rank) for rank in ranks} == {2}


def test_three_levels_and_a_chain_between() -> None:
    trunks = (
        Trunk("leaf1", 101, "mid1", 1),
        Trunk("leaf2", 101, "mid1", 2),
        Trunk("leaf3", 101, "mid2", 1),
        Trunk("mid1", 102, "core", 1),
        Trunk("mid2", 102, "core", 2),
    )
    value, ranks = plane({"leaf1": 2, "leaf2": 2, "leaf3": 1}, trunks, ("mid1", "mid2", "core"))
    tree = trees.build(value, ranks, names(value))
    check(tree, value, ranks)
    assert max(tree.depth(rank) for rank in ranks) == 3
    assert tree.root.switch == "core"


def chain(switches: int) -> tuple[Plane, dict[int, Nic]]:
    """Return a line of switches with a host at each end."""
    line = [f"s{number}" for number in range(1, switches + 1)]
    trunks = tuple(Trunk(lower, 101, upper, 102) for lower, upper in itertools.pairwise(line))
    return plane({line[0]: 1, line[-1]: 1}, trunks, tuple(line[1:-1]))


def test_a_tree_is_no_deeper_than_a_probe_to_the_root_can_note() -> None:
    value, ranks = chain(7)
    tree = trees.build(value, ranks, names(value))
    assert [tree.depth(rank) for rank in ranks] == [4, 4]
    value, ranks = chain(9)
    with pytest.raises(Refused, match="joins s1, s9 would have 5 levels: expected at most 4"):
        trees.build(value, ranks, names(value))


def test_a_tree_over_slower_links_is_better_than_one_that_is_too_deep() -> None:
    value, ranks = chain(9)
    fast = tuple(replace(trunk, rate_bps=10**9) for trunk in value.trunks)
    short = Trunk("s1", 103, "s9", 103, 10**6)
    value = replace(value, trunks=(*fast, short), rate_bps=10**9)
    assert max(trees.build(value, ranks, names(value)).depth(rank) for rank in ranks) == 2


def test_the_limit_of_depth_is_what_the_programs_probe_has_room_for() -> None:
    slot = re.search(r"bit<(\d+)> slot;", (SOURCE_ROOT / "common/headers.p4").read_text())
    step = re.search(r"#define PATH_STEP (\d+)", (SOURCE_ROOT / "common/types.p4").read_text())
    assert (int(slot[1]), int(step[1])) == (trees.PATH_BITS, trees.PATH_STEP)


def test_fan_in_is_limited_by_the_bitmap() -> None:
    value, ranks = plane({"s": 31})
    check(trees.build(value, ranks, names(value)), value, ranks)
    value, ranks = plane({"s": 32})
    with pytest.raises(Refused, match="switch s would add 32 contributors: expected at most 31"):
        trees.build(value, ranks, names(value))


def of(topology: Topology) -> tuple[Plane, dict[int, Nic]]:
    value = topology.planes[0]
    return value, dict(enumerate(value.nics))


def test_more_racks_than_a_switch_has_children_are_joined_in_balance() -> None:
    value, ranks = of(leaf_spine(racks=40, hosts=2, spines=2, rails=("ina",)))
    tree = trees.build(value, ranks, names(value))
    check(tree, value, ranks)
    widest = sorted(len(node.contributors) for node in tree.nodes)[-2:]
    assert widest in ([20, 20], [20, 21])


@pytest.mark.parametrize("count", [2, 9])
def test_trees_of_a_job_have_roots_of_their_own(count: int) -> None:
    value, ranks = of(leaf_spine(racks=2, hosts=2, spines=3, rails=("ina",)))
    found = trees.spread(value, ranks, names(value), count, {"spine1": 5})
    assert len({tree.root.switch for tree in found}) == len(found) == min(count, 3)
    assert all(len(tree.nodes) == 3 for tree in found)
    for tree in found:
        check(tree, value, ranks)
    (alone,) = trees.spread(value, {rank: ranks[rank] for rank in (0, 1)}, names(value), count)
    assert [node.switch for node in alone.nodes] == ["leaf1"]  # a job in one rack stays there


def test_a_pods_racks_meet_at_one_switch_of_the_pod() -> None:
    value, ranks = of(fat_tree(4, rails=("ina",)))
    for tree in trees.spread(value, ranks, names(value), 4):
        check(tree, value, ranks)
        assert max(tree.depth(rank) for rank in ranks) == 3
        assert len(tree.nodes) == 8 + 4 + 1  # edges, one aggregation switch per pod, one core


def test_faster_links_are_worth_a_level() -> None:
    slow = [replace(t, rate_bps=10**6) if "spine1" in (t.lower, t.upper) else t for t in LEAF_SPINE]
    value, ranks = two_racks(1, 1, trunks=tuple(slow), rate_bps=10**8)
    assert trees.build(value, ranks, names(value)).root.switch == "spine2"
    assert trees.build(value, ranks, ["leaf1", "leaf2", "spine1"]).root.switch == "spine1"


def test_links_to_avoid_are_gone_round_and_what_is_out_of_reach_is_named() -> None:
    value, ranks = two_racks(1, 1)
    bad = frozenset({"leaf2", "spine1"})
    assert trees.build(value, ranks, names(value), avoid=[bad]).root.switch == "spine2"
    for usable, avoid, message in (
        (
            names(value),
            [bad, {"leaf1", "spine2"}],
            "no usable switch of plane 'ina' reaches all of leaf1, leaf2",
        ),
        (names(value), [{"h1", "leaf1"}], "the link between h1 and leaf1 seems to be dead"),
        (["leaf2"], [], "switch leaf1 of plane 'ina' is not usable"),
    ):
        with pytest.raises(Refused, match=message):
            trees.build(value, ranks, usable, avoid=list(map(frozenset, avoid)))
