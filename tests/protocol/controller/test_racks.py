# SPDX-License-Identifier: Apache-2.0
"""Jobs on fabrics of which only some racks aggregate: places, refusals, moves, restarts, and events."""

from __future__ import annotations

import grpc
import pytest
from controller_world import World, controller_of, new_world, running_switches
from watcher import Watcher, refused, watched

from railweave.controller.quotas import Quota, Quotas
from railweave.topologies.clos import mixed_racks
from railweave.v1 import controller_pb2 as pb

TWO_OF_THREE = mixed_racks(3, 2, 2, rails=("ina", "tcp"))
RANKS = 6


def ring_of(answer: pb.JoinGroupResponse) -> list[tuple[int, ...]]:
    (ring,) = answer.rings
    assert (ring.rail, ring.lanes) == ("ina", 64)
    return [tuple(member.ranks) for member in ring.members]


async def test_each_rack_that_aggregates_gets_a_tree_and_all_get_the_ring() -> None:
    async with new_world(topology=TWO_OF_THREE) as world:
        answers = await world.join(RANKS)
        assert [ring_of(answer) for answer in answers] == [[(0, 1), (2, 3), (4,), (5,)]] * RANKS
        assert not any(answer.refusals for answer in answers)
        places = [[(place.tree, place.child, place.depth) for place in answer.ina] for answer in answers]
        assert places == [[(0, 0, 1)], [(0, 1, 1)], [(1, 0, 1)], [(1, 1, 1)], [], []]
        groups = [place.group for answer in answers for place in answer.ina]
        assert groups[0] == groups[1] != groups[2] == groups[3]


@pytest.mark.parametrize(
    ("ina", "spine", "ring"),
    [
        (0, "plain", [(0,), (1,), (2,), (3,), (4,), (5,)]),
        (3, "plain", [(0, 1), (2, 3), (4, 5)]),
        (2, "ina", [(0, 1, 2, 3), (4,), (5,)]),
        (3, "ina", None),
    ],
)
async def test_the_best_that_the_fabric_allows(
    ina: int, spine: str, ring: list[tuple[int, ...]] | None
) -> None:
    topology = mixed_racks(3, 2, ina, spine, rails=("ina", "tcp"))
    async with new_world(topology=topology) as world:
        for answer in await world.join(RANKS):
            assert (ring_of(answer) if answer.rings else None) == ring
            assert not answer.refusals


async def test_a_rack_without_room_is_single_ranks_and_why_says_so() -> None:
    quotas = Quotas(Quota(4096), (("none", Quota(0)),))
    async with new_world(topology=TWO_OF_THREE, quotas=quotas) as world:
        for job in ("job", "more"):  # these fill the switches
            await world.join(RANKS, job)
        for job, why in (("late", "slots in a row"), ("none", "0 slots")):
            for answer in await world.join(RANKS, job):
                assert ring_of(answer) == [(rank,) for rank in range(RANKS)]
                assert not answer.ina
                assert not answer.refusals
            report = await report_of(world, job)
            assert why in report.ring[0].reason
            assert report.ring[5].reason.startswith("leaf3 is no P4 switch: expected ")
        first = await report_of(world, "job")
        assert [member.reason for member in first.ring[:2]] == ["", ""]
        assert [tree.root for tree in first.trees] == ["leaf1", "leaf2"]


async def report_of(world: World, job: str) -> pb.RailReport:
    """Return the controller's report about a job's ina rail."""
    return (await world.stub.Explain(pb.ExplainRequest(job=job))).jobs[0].rails[0]


async def test_only_the_ranks_of_a_rack_move_with_it() -> None:
    async with new_world(topology=TWO_OF_THREE) as world:
        watchers = await watched(world, RANKS)
        await world.switches["leaf2"].restart(lose_state=True)
        for position, watcher in enumerate(watchers[2:4]):
            assert (await watcher.paused(7 + position)).tree == 1
        for watcher in watchers[2:4]:
            moved = await watcher.moved()
            assert (moved.resume_from, moved.place.tree) == (7, 1)
        watchers[0].call.cancel()
        for watcher in watchers[1:]:
            assert (await watcher.lost())[0] == 0  # without an earlier event


async def test_a_restarted_controller_learns_the_ring_from_the_ranks() -> None:
    async with running_switches(TWO_OF_THREE) as switches:
        async with controller_of(TWO_OF_THREE, switches) as world:
            answers = await world.join(RANKS)
            before = {name: switch.snapshot() for name, switch in switches.items()}
        async with controller_of(TWO_OF_THREE, switches) as world:
            for rank, answer in enumerate(answers):
                Watcher(world, answer, world.resume(rank, answer, RANKS))
            await world.watched("job", *range(RANKS))
            assert {name: switch.snapshot() for name, switch in switches.items()} == before
            report = await report_of(world, "job")
            assert [tuple(member.ranks) for member in report.ring] == ring_of(answers[0])
            assert {(tree.tree, tree.root) for tree in report.trees} == {(0, "leaf1"), (1, "leaf2")}


@pytest.mark.parametrize("lie", ["another ring", "another rack's tree", "a ring without all ranks"])
async def test_a_rank_that_claims_something_else_is_refused(lie: str) -> None:
    async with running_switches(TWO_OF_THREE) as switches:
        async with controller_of(TWO_OF_THREE, switches) as world:
            answers = await world.join(RANKS)
        async with controller_of(TWO_OF_THREE, switches) as world:
            honest = Watcher(world, answers[0], world.resume(0, answers[0], RANKS))
            await world.watched("job", 0)
            claim = world.resume(2, answers[2], RANKS)
            if lie == "another rack's tree":
                claim.ina[0].tree = 0
            elif lie == "another ring":
                claim.rings[0].members[2].ranks[0], claim.rings[0].members[3].ranks[0] = 5, 4
            else:
                del claim.rings[0].members[3]
            liar = Watcher(world, answers[2], claim)
            await refused(liar, grpc.StatusCode.INVALID_ARGUMENT)
            assert not honest.call.done()
