# SPDX-License-Identifier: Apache-2.0
"""The number of lanes in a plane's packets: by the MTU of its links, or by an option."""

from __future__ import annotations

from dataclasses import replace

import pytest

from railweave.controller.errors import ControllerError
from railweave.controller.fabric import Fabric
from railweave.p4src.artifacts import artifact
from railweave.topologies.clos import leaf_spine
from railweave.topologies.model import Topology


def two_planes(mtu: int, trunk_mtu: int | None = None) -> Topology:
    """Return two planes: one with this MTU except on one trunk (`trunk_mtu`), one with the default MTU."""
    made = leaf_spine(2, 1, 1, rails=("ina", "ina"))
    first, second = made.planes
    trunks = (first.trunks[0], replace(first.trunks[1], mtu=trunk_mtu))
    return replace(made, planes=(replace(first, mtu=mtu, trunks=trunks), second))


@pytest.mark.parametrize(
    ("mtu", "trunk_mtu", "lanes"),
    [(9000, None, 1024), (9216, 9000, 1024), (8999, None, 256), (9000, 1500, 256)],
)
def test_jumbo_links_give_more_lanes_if_all_are(mtu: int, trunk_mtu: int | None, lanes: int) -> None:
    fabric = Fabric(two_planes(mtu, trunk_mtu), None, suspect_s=30)
    assert fabric.lanes == {"ina0": lanes, "ina1": 256}


def test_lanes_that_are_asked_for_are_on_all_planes() -> None:
    assert Fabric(two_planes(9000), artifact(64), suspect_s=30).lanes == {"ina0": 64, "ina1": 64}


def test_a_link_that_does_not_carry_them_is_named() -> None:
    topology = two_planes(9000, 4139)
    with pytest.raises(ControllerError) as refused:
        Fabric(replace(topology, planes=topology.planes[:1]), artifact(1024), suspect_s=30)
    assert str(refused.value) == (
        "plane 'ina0': link ina0-l2 to ina0-s1 has an MTU of 4139: expected 4140 or more, for packets of "
        "1024 lanes; raise its `mtu` (here and on the machines), or take fewer lanes (--lanes)"
    )
