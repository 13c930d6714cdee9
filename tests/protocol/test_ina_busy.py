# SPDX-License-Identifier: Apache-2.0
"""Endpoints and switches whose processors are away for 2 to 30 ms at a time, as beside a busy neighbour."""

from __future__ import annotations

import random
from functools import partial

import numpy as np
import pytest
from protocol.network import GROUP, MILLISECOND, SECOND, Link, Network, Node, Port, Shape, tree_of
from protocol.test_ina_recovery import LANES, PACKET_TIME, join, run_sum, total

SHARE = 0.3  # of its time that a processor is away
CHUNKS = 4000  # 0.35 s on the link


class BusyNetwork(Network):
    """Hosts and switches on two processors, each of which is away now and then until `calm_from`."""

    calm_from = 60 * SECOND

    def __init__(self, root: Node, hosts: int, jobs: int, seed: int) -> None:
        """Begin with the processors' absences drawn."""
        generator = random.Random(seed)
        self._absences = [_absences(generator, self.calm_from) for _ in range(2)]
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

    def _back_at(self, processor: int) -> int:
        """When the processor is there again; 0 if it is."""
        absences = self._absences[processor % 2]
        while absences and absences[-1][1] <= self.now:
            absences.pop()
        return absences[-1][1] if absences and absences[-1][0] <= self.now < self.calm_from else 0

    def at_host(self, host: int, data: bytes) -> None:
        if back := self._back_at(host):
            return self.at(back, partial(self.at_host, host, data))
        return super().at_host(host, data)

    def at_switch(self, node: Node, port: Port, data: bytes) -> None:
        if back := self._back_at(node.number + 1):
            return self.at(back, partial(self.at_switch, node, port, data))
        return super().at_switch(node, port, data)

    def _wake(self, index: int, timer: int) -> None:
        if back := self._back_at(self.ranks[index].host):
            return self.at(back, partial(self._wake, index, timer))
        return super()._wake(index, timer)


def _absences(generator: random.Random, until: int) -> list[tuple[int, int]]:
    """Draw when one processor is away; the last absence first."""
    absences: list[tuple[int, int]] = []
    at = 0
    while at < until:
        length = int(generator.uniform(2, 30) * MILLISECOND)
        at += int(length * (1 - SHARE) / SHARE * generator.uniform(0.5, 1.5))
        absences.append((at, at + length))
        at += length
    return absences[::-1]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_link_is_used_although_processors_are_away(seed: int) -> None:
    network = BusyNetwork(tree_of(Shape.of(4), LANES), 4, 1, seed)
    run_sum(network, CHUNKS * LANES)
    took = sum(run_sum(network, CHUNKS * LANES, op_index) for op_index in (1, 2))
    assert 2 * CHUNKS * PACKET_TIME / took > 0.85
    assert total(network, "retransmissions") < 0.02 * 4 * 3 * CHUNKS


def test_the_queue_is_short_again_once_the_network_is_calm() -> None:
    network = BusyNetwork(tree_of(Shape.of(4), LANES), 4, 1, seed=1)
    run_sum(network, CHUNKS * LANES)
    busy = max(endpoint.stats()["window"] for endpoint in network.endpoints)
    network.calm_from = network.now
    network.at(network.now + 12 * SECOND, lambda: None)
    network.drain()
    run_sum(network, CHUNKS * LANES, 1)
    calm = [endpoint.stats()["window"] * PACKET_TIME / MILLISECOND for endpoint in network.endpoints]
    assert busy * PACKET_TIME > 15 * MILLISECOND
    assert all(6 <= each <= 10 for each in calm)


def test_jobs_share_a_link_although_processors_are_away() -> None:
    network = BusyNetwork(tree_of(Shape.of(2), LANES), 2, 2, seed=4)
    values = [np.zeros(100_000 * LANES, np.int32) for _ in network.ranks]
    for rank, endpoint in enumerate(network.endpoints):
        endpoint.start(0, "sum", values[rank], values[rank])
        network.pump(rank)
    while network.now < 3 * SECOND:
        network.step()
    results = [network.endpoints[rank].stats()["results"] for rank in (0, 2)]
    assert 0.45 <= results[0] / sum(results) <= 0.55
    assert sum(results) * PACKET_TIME > 0.85 * network.now
