# SPDX-License-Identifier: Apache-2.0
"""New endpoints behind calls that were cut off, with the compiled programs, as rails make them."""

from __future__ import annotations

import random
from collections import Counter
from functools import partial

import numpy as np
import pytest

from railweave import sdk
from railweave.sdk.check.network import Network, Process
from railweave.sdk.check.results import compare, inputs
from railweave.sdk.virtual_time import MICROSECOND, MILLISECOND, SECOND, Link
from railweave.topologies.named import named

FAILURES = 8  # in a run
LINK = Link(delay=20 * MICROSECOND, loss=0.02, duplicate=0.02, reorder=0.2, late=5 * MILLISECOND)


class Rank(Process):
    """A process of a rank that may be cut off. The next process goes on behind its `reserved` position."""

    def __init__(self, network: Network, job: sdk.Job, rank: int, position: int) -> None:
        super().__init__(network, job, rank)
        self.reserved = position
        if position:
            self.endpoint.start_at(position)

    def begin(self, given: sdk.Array, op: str) -> None:
        if not self.dead:
            self.endpoint.begin(given, op)
            self.turn()

    def turn(self) -> None:
        self.reserved = max(self.reserved, self.endpoint.position)
        super().turn()

    def cut_off(self) -> None:
        self.dead = True


class Run:
    """Calls of one job. Some are cut off at all ranks, at different times, while packets are under way."""

    def __init__(self, name: str, seed: int) -> None:
        self.random = random.Random(seed)
        self.generator = np.random.default_rng(seed)
        self.algorithm = sdk.find(name)
        ranks, self.lanes = self.random.randint(2, 4), self.algorithm.manifest.lanes[-1]
        plane = named(f"planes:hosts={ranks}", rails=["ina"], rates=[0]).planes[0]
        self.network = Network(self.algorithm, plane, self.lanes, LINK, seed)
        self.job = self.algorithm.job(0, ranks, {"slots": self.random.choice((2, 8, 32))}, self.lanes)
        self.network.install([self.job])
        self.seen: Counter[str] = Counter()
        self.replace(0)

    def replace(self, position: int) -> None:
        self.ranks = [Rank(self.network, self.job, rank, position) for rank in range(self.job.ranks)]

    def soon(self) -> int:
        return self.network.now + int(self.random.random() * MILLISECOND)

    def begin(self) -> list[sdk.Array]:
        """Begin a call at all ranks, one after the other. Return their numbers."""
        manifest = self.algorithm.manifest
        count = self.random.choice((1, 40 * self.lanes, self.random.randint(1, 40 * self.lanes)))
        dtype, density = self.random.choice(manifest.dtypes), self.random.choice((1.0, 0.3))
        given = inputs(self.generator, self.job.ranks, count, dtype, density, self.lanes)
        for rank, numbers in zip(self.ranks, given, strict=True):
            self.network.at(self.soon(), partial(rank.begin, numbers, manifest.operations[0]))
        return given

    def call(self) -> None:
        """Make a call, and compare the results."""
        before, given = self.network.now + MILLISECOND, self.begin()
        self.network.run_until(before)
        self.network.run(lambda: all(rank.endpoint.done for rank in self.ranks), 600 * SECOND)
        for rank in self.ranks:
            op = self.algorithm.manifest.operations[0]
            compare(self.algorithm, given, op, rank.endpoint.result, f"rank {rank.endpoint.rank}")

    def fail(self) -> None:
        """Cut a call off, and replace the ranks' processes. Packets of the old ones are under way."""
        self.begin()
        for rank in self.ranks:
            self.network.at(self.soon() + self.random.choice((0, 2, 20)) * MILLISECOND, rank.cut_off)
        self.network.run(lambda: all(rank.dead for rank in self.ranks), SECOND)
        done = sum(rank.endpoint.done for rank in self.ranks)
        self.seen["all" if done == self.job.ranks else "some" if done else "none"] += 1
        self.replace(max(rank.reserved for rank in self.ranks))


@pytest.mark.parametrize("name", ["sum", "switchml", "omnireduce", "mink", "thc"])
def test_calls_are_right_behind_calls_that_were_cut_off(name: str) -> None:
    seen: Counter[str] = Counter()
    for seed in range(20):
        run = Run(name, seed)
        for _ in range(FAILURES):
            for _ in range(run.random.randint(0, 2)):
                run.call()
            run.fail()
        run.call()
        seen += run.seen
    assert min(seen["all"], seen["some"], seen["none"]) >= FAILURES, seen
