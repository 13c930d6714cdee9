# SPDX-License-Identifier: Apache-2.0
"""Endpoints and switches on processors that a busy neighbour takes for 2 to 30 ms at a time."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from protocol.network import GROUP, Network, Shape, tree_of
from protocol.test_ina_recovery import LANES, PACKET_TIME, join, run_sum, total
from protocol.virtual_time import MILLISECOND, SECOND, Link

SHARE = 0.3  # share of the time for which a processor is away
CHUNKS = 4000  # 0.35 s on the link


class BusyNetwork(Network):
    """Hosts and a switch on two processors. Until `calm_from` each processor is away from time to time."""

    calm_from = 60 * SECOND

    def __init__(self, hosts: int, jobs: int, seed: int) -> None:
        """Begin with both processors present."""
        root = tree_of(Shape.of(hosts), LANES)
        endpoints = [
            endpoint
            for job in range(jobs)
            for endpoint in join(
                *(root, range(hosts), 4096, LANES),
                group=GROUP + job,
                base=8192 * job,
                packet_time=PACKET_TIME,
            )
        ]
        super().__init__(endpoints, root, Link(packet_time=PACKET_TIME), seed, [*range(hosts)] * jobs)
        for stand in (self._first_stands, self._second_stands):
            first = int(self.random.uniform(0, 30) * MILLISECOND)
            self.at(first, partial(self.take_core, stand, SHARE, self.calm_from))

    def _first_stands(self, duration: int) -> None:
        for rank in self.ranks:
            if rank.host % 2 == 0 and self.now < self.calm_from:
                rank.sleep(duration)

    def _second_stands(self, duration: int) -> None:
        for rank in self.ranks:
            if rank.host % 2 and self.now < self.calm_from:
                rank.sleep(duration)
                self.root.asleep_until = self.now + duration


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_link_is_used_although_processors_are_away(seed: int) -> None:
    network = BusyNetwork(4, 1, seed)
    run_sum(network, CHUNKS * LANES)
    took = sum(run_sum(network, CHUNKS * LANES, op_index) for op_index in (1, 2))
    assert 2 * CHUNKS * PACKET_TIME / took > 0.85
    assert total(network, "retransmissions") < 0.02 * 4 * 3 * CHUNKS


def test_the_queue_is_short_again_once_the_network_is_calm() -> None:
    network = BusyNetwork(4, 1, seed=1)
    run_sum(network, CHUNKS * LANES)
    busy = max(endpoint.stats()["window"] for endpoint in network.endpoints)
    network.calm_from = network.now
    network.run_until(network.now + 12 * SECOND)
    run_sum(network, CHUNKS * LANES, 1)
    calm = [endpoint.stats()["window"] * PACKET_TIME / MILLISECOND for endpoint in network.endpoints]
    assert busy * PACKET_TIME > 15 * MILLISECOND
    assert all(6 <= each <= 10 for each in calm)


def test_jobs_share_a_link_although_processors_are_away() -> None:
    network = BusyNetwork(2, 2, seed=4)
    values = [np.zeros(100_000 * LANES, np.int32) for _ in network.ranks]
    for rank, endpoint in enumerate(network.endpoints):
        endpoint.start(0, "sum", values[rank], values[rank])
        network.ranks[rank].pump()
    network.run_until(3 * SECOND)
    results = [network.endpoints[rank].stats()["results"] for rank in (0, 2)]
    assert 0.45 <= results[0] / sum(results) <= 0.55
    assert sum(results) * PACKET_TIME > 0.85 * network.now
