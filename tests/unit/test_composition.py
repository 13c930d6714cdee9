# SPDX-License-Identifier: Apache-2.0
"""The ranks that switches can add up on mixed fabrics, and the order of the ring."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from railweave._native.collectives import Collective, DType
from railweave._rigs import composed
from railweave.controller import composition
from railweave.controller.composition import Member
from railweave.hosts.capabilities import use
from railweave.hosts.striping.priors import StripedRail, prior_lines
from railweave.topologies.clos import leaf_spine, mixed_racks
from railweave.topologies.model import Nic, Plane


def at(plane: Plane, *numbers: int) -> dict[int, Nic]:
    """Return the NICs of rank 0, 1, … on the hosts with these numbers."""
    return {rank: plane.nics[number - 1] for rank, number in enumerate(numbers)}


def crossings(order: list[Member], ranks: dict[int, Nic]) -> int:
    """Count the links between switches that a ring of the members crosses, below one spine."""
    leaves = [ranks[member.ranks[0]].switch for member in order]
    return 2 * sum(here != there for here, there in zip(leaves, [*leaves[1:], leaves[0]], strict=True))


def test_racks_are_joined_unless_a_rank_is_alone_behind_its_switch() -> None:
    assert not composition.mixed(leaf_spine(2, 2, 2, rails=("ina",)).planes[0])
    (plane,) = mixed_racks(2, 2, 1, rails=("ina",)).planes
    assert composition.mixed(plane)
    ranks = at(plane, 1, 3, 4)
    assert composition.racks(plane, ranks) == []
    assert composition.alone(plane, 0, ranks).reason.startswith("no other rank is behind leaf1")
    assert composition.alone(plane, 1, ranks) == Member((1,), str(composition.not_p4("leaf2")))


@pytest.mark.parametrize("seed", range(8))
def test_the_ring_crosses_the_core_once_per_rack(seed: int) -> None:
    """Any placement of ranks gives 8 links: the ring enters and leaves each of four racks once."""
    (plane,) = mixed_racks(4, 4, 2, rails=("ina",)).planes
    hosts = list(range(1, 17))
    random.Random(seed).shuffle(hosts)
    ranks = at(plane, *hosts)
    members = [Member(rack) for rack in composition.racks(plane, ranks)]
    taken = {rank for member in members for rank in member.ranks}
    members += [composition.alone(plane, rank, ranks) for rank in sorted(ranks.keys() - taken)]
    order = composition.in_order(plane, members, ranks)
    assert sorted(rank for member in order for rank in member.ranks) == list(range(16))
    assert crossings(order, ranks) == 8


def test_hosts_plan_a_ring_as_one() -> None:
    """The ring has the steps and bytes of its members. Calls that it cannot carry use a ring of all ranks."""
    ring = StripedRail("ina", 0, "ina", rate_bps=8 * 10**6, members=4)
    flat, tree = replace(ring, kind="tcp", members=0), replace(ring, members=0)
    (of_ring,) = prior_lines([ring], 16, "all_reduce").values()
    assert of_ring == prior_lines([flat], 4, "all_reduce")[0]
    assert prior_lines([ring], 16, "all_gather") == prior_lines([flat], 16, "all_gather")
    assert of_ring != prior_lines([tree], 16, "all_reduce")[0]
    assert use(ring, Collective.ALL_REDUCE, DType.FLOAT32, 99, 16).text == "a ring of 4 racks and ranks"
    assert use(ring, Collective.ALL_GATHER, DType.FLOAT32, 99, 16).text == "by the hosts"


def test_hosts_and_controller_agree_on_columns() -> None:
    assert composed.MOST_COLUMNS == composition.MAX_COLUMNS
    assert composition.columns([4, 6, 1]) == composed.columns_of([[0] * 4, [0] * 6, [0]]) == 12
