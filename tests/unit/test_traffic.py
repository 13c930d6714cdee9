# SPDX-License-Identifier: Apache-2.0
"""The formulas for link crossings equal the result of walks over the links of a topology."""

from __future__ import annotations

import networkx
import pytest

from railweave.experiments.figures.runs import traffic_model as traffic
from railweave.topologies.clos import fat_tree, leaf_spine
from railweave.topologies.model import Plane, Topology
from railweave.topologies.planes import planes


def links(plane: Plane) -> networkx.Graph:
    graph = networkx.Graph((nic.host, nic.switch) for nic in plane.nics)
    graph.add_edges_from((trunk.lower, trunk.upper) for trunk in plane.trunks)
    return graph


@pytest.mark.parametrize(
    ("topology", "levels"),
    [
        (planes(5, ("ina",)), ()),
        (leaf_spine(racks=3, hosts=4, spines=1, rails=("ina",)), (4,)),
        (fat_tree(k=4, aggs=1, cores=1, rails=("ina",)), (2, 4)),
    ],
)
def test_crossings_are_those_of_the_links(topology: Topology, levels: tuple[int, ...]) -> None:
    (plane,), hosts = topology.planes, topology.hosts
    graph = links(plane)
    hops = [
        networkx.shortest_path_length(graph, *pair)
        for pair in zip(hosts, (*hosts[1:], hosts[0]), strict=True)
    ]
    assert traffic.ring(len(hosts), levels) == (len(hosts) - 1) * sum(hops)
    # A shard crosses all links of one tree.
    assert traffic.multicast(len(hosts), levels) == len(hosts) * graph.number_of_edges()


def test_the_numbers_of_the_paper_s_fat_tree() -> None:
    assert traffic.ring(188, (18, 36)) == 76_670
    assert traffic.multicast(188, (18, 36)) == 38_540
    assert [traffic.ring(p) / traffic.multicast(p) for p in (4, 8, 16)] == [1.5, 1.75, 1.875]


def test_levels_above_all_hosts_are_not_crossed() -> None:
    assert (traffic.ring(16, (18, 36)), traffic.multicast(16, (18, 36))) == (480, 256)
    assert traffic.multicast(36, (18, 36)) == 36 * 38
