# SPDX-License-Identifier: Apache-2.0
"""A job from its first rank to its last, on a switch that is configured over P4Runtime."""

from __future__ import annotations

from conftest import new_world
from railweave.v1 import controller_pb2 as pb


def test_a_group_gets_its_entries_and_leaves_none_behind(run) -> None:
    async def body() -> None:
        async with new_world(hosts=4) as world:
            answers = await world.join(4)
            assert sorted(answer.ina[0].child for answer in answers) == [0, 1, 2, 3]
            assert len(world.switch.table("members")) == 4
            assert world.switch.multicasts()[2] == {(1, 1), (2, 2), (3, 3), (4, 4)}
            for answer in answers:
                await world.stub.LeaveGroup(pb.LeaveGroupRequest(lease=answer.lease))
            await world.settled(lambda: set(world.switch.multicasts()) == {1})
            assert not world.switch.table("replicas")

    run(body())
