# SPDX-License-Identifier: Apache-2.0
"""Trees: from one switch to three levels, by properties that any tree must have and by examples."""

from __future__ import annotations

import pytest
from railweave.controller import trees
from railweave.controller.errors import Refused
from railweave.controller.tree import Contributor, Tree
from railweave.topologies.model import Nic, Plane, Switch, Trunk


def plane(
    leaves: dict[str, int], trunks: tuple[Trunk, ...] = (), others: tuple[str, ...] = ()
) -> tuple[Plane, dict[int, Nic]]:
    """A plane with so many hosts per leaf, and all its NICs by rank."""
    nics = []
    for leaf, hosts in leaves.items():
        for port in range(1, hosts + 1):
            number = len(nics) + 1
            nics.append(
                Nic(
                    f"h{number}",
                    f"h{number}-ina",
                    f"10.1.{number // 250}.{number % 250 + 1}",
                    f"02:00:00:01:{number // 256:02x}:{number % 256:02x}",
                    leaf,
                    port,
                )
            )
    switches = tuple(Switch(name, "127.0.0.1:1") for name in (*leaves, *others))
    value = Plane("ina", "ina", "10.1.0.0/16", 0, switches, tuple(nics), trunks)
    return value, dict(enumerate(nics))


LEAF_SPINE = (
    Trunk("leaf1", 101, "spine1", 1),
    Trunk("leaf2", 101, "spine1", 2),
    Trunk("leaf1", 102, "spine2", 1),
    Trunk("leaf2", 102, "spine2", 2),
)


def names(value: Plane) -> list[str]:
    return [switch.name for switch in value.switches]


def check(tree: Tree, value: Plane, ranks: dict[int, Nic]) -> None:
    """What any tree must be: every rank once, children known to parents by the same numbers, real links."""
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


def test_one_switch_is_the_root() -> None:
    value, ranks = plane({"s": 4})
    tree = trees.build(value, ranks, names(value))
    check(tree, value, ranks)
    assert [node.switch for node in tree.nodes] == ["s"]
    assert [tree.depth(rank) for rank in ranks] == [1, 1, 1, 1]
    assert tree.place(2)[1] == Contributor(child=2, port=3, rank=2)


def test_a_job_in_one_rack_stays_there() -> None:
    value, ranks = plane({"leaf1": 4, "leaf2": 4}, LEAF_SPINE, ("spine1", "spine2"))
    tree = trees.build(value, {rank: ranks[rank] for rank in range(4)}, names(value))
    assert [node.switch for node in tree.nodes] == ["leaf1"]


def test_two_racks_join_at_a_spine() -> None:
    value, ranks = plane({"leaf1": 4, "leaf2": 3}, LEAF_SPINE, ("spine1", "spine2"))
    tree = trees.build(value, ranks, names(value))
    check(tree, value, ranks)
    assert tree.root.switch == "spine1"
    assert {tree.depth(rank) for rank in ranks} == {2}


def test_trees_spread_over_the_spines_by_load() -> None:
    value, ranks = plane({"leaf1": 1, "leaf2": 1}, LEAF_SPINE, ("spine1", "spine2"))
    assert trees.build(value, ranks, names(value), {"spine1": 1}).root.switch == "spine2"
    assert trees.build(value, ranks, names(value), {"spine1": 1, "spine2": 2}).root.switch == "spine1"


def test_a_switch_that_is_not_usable_is_gone_round() -> None:
    value, ranks = plane({"leaf1": 2, "leaf2": 2}, LEAF_SPINE, ("spine1", "spine2"))
    tree = trees.build(value, ranks, ["leaf1", "leaf2", "spine2"])
    check(tree, value, ranks)
    assert tree.root.switch == "spine2"


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


@pytest.mark.parametrize("hosts", [31, 32, 62])
def test_fan_in_is_limited_by_the_bitmap(hosts: int) -> None:
    value, ranks = plane({"s": hosts})
    if hosts <= 31:
        check(trees.build(value, ranks, names(value)), value, ranks)
    else:
        with pytest.raises(Refused, match=rf"switch s would add {hosts} contributors; its limit is 31"):
            trees.build(value, ranks, names(value))


def test_what_is_out_of_reach_is_named() -> None:
    value, ranks = plane({"leaf1": 1, "leaf2": 1})
    with pytest.raises(Refused, match="no usable switch of plane 'ina' reaches all of leaf1, leaf2"):
        trees.build(value, ranks, names(value))
    with pytest.raises(Refused, match="switch leaf1 of plane 'ina' is not usable"):
        trees.build(value, ranks, ["leaf2"])
