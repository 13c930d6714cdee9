# SPDX-License-Identifier: Apache-2.0
"""The controller's news of trees: an obstacle of their rail, or a failure if no rail is left."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from railweave._native.agent import Failure
from railweave.hosts.events import GroupMoved, GroupPaused, InaGroup, PlaneDown, PlaneUp, RailOffer, Ring
from railweave.hosts.trees import Trees


class FakeAgent:
    """An agent with two ina rails, 0 and 2. It remembers their obstacles and the failure."""

    def __init__(self) -> None:
        self.obstacles: dict[int, str] = {}
        self.failure: Failure | None = None
        self.impossible = False
        self.closed = threading.Event()

    def attach_ina(self, rail: int, places: Any, members: Any, roots: int, *, redo: bool) -> None:
        assert rail in (0, 2)
        assert not redo
        assert places
        assert members == [("10.1.0.1", 4000 + rail), ("10.1.0.2", 4000 + rail)]

    def pause_ina(self, rail: int, group: int) -> int:
        return 100 * rail + group

    def resume_ina(self, *_: Any) -> None:
        if self.impossible:
            raise ValueError("no such group")

    def next_stall(self, timeout_s: float) -> None:
        self.closed.wait(timeout_s)

    def set_obstacle(self, rail: int, reason: str) -> None:
        self.obstacles[rail] = reason

    def fail(self, failure: Failure) -> None:
        self.failure = failure


class FakeMembership:
    def __init__(self, *places: InaGroup) -> None:
        self.rings: dict[str, Ring] = {}
        self.groups = {rail: [p for p in places if p.rail == rail] for rail in {p.rail for p in places}}
        self.positions: list[tuple[int, int]] = []
        self.members = {
            rank: [
                RailOffer(rail, "ina", rail, f"10.1.0.{rank + 1}", "", 4000 + index)
                for rail, index in (("left", 0), ("right", 2))
            ]
            for rank in (0, 1)
        }

    def report_position(self, group: int, position: int) -> None:
        self.positions.append((group, position))


def place(rail: str, group: int, tree: int = 0) -> InaGroup:
    return InaGroup(rail, group, "10.1.255.1", 5257, 0, 64, 256, 1, tree)


PLACES = place("left", 5), place("left", 6, tree=1), place("right", 7)
PAUSED, MOVED = "plane {!r}: its group is paused, and the controller has not moved it", ""


class World:
    def __init__(self, *, recover: bool, others: bool) -> None:
        self.agent, self.membership = FakeAgent(), FakeMembership(*PLACES)
        self.trees = Trees(self.agent)  # type: ignore[arg-type]
        self.trees.attach(self.membership, {"left": 0, "right": 2})  # type: ignore[arg-type]
        if recover:
            self.trees.recover(without_trees=others)

    def close(self) -> None:
        self.trees.close()
        self.agent.closed.set()
        self.trees.join()


@pytest.fixture
def world(request: pytest.FixtureRequest) -> Any:
    made = World(**{"recover": True, "others": True, **getattr(request, "param", {})})
    yield made
    made.close()


def test_a_rail_is_obstructed_until_the_last_of_its_trees_is_moved(world: World) -> None:
    for group in (5, 6):
        world.trees.handle(GroupPaused("left", group - 5, group, "a switch is gone"))
    assert world.agent.obstacles == {0: PAUSED.format("left"), 2: ""}
    assert world.membership.positions == [(5, 5), (6, 6)]
    world.trees.handle(GroupMoved(5, place("left", 8), 0))
    assert world.agent.obstacles[0] == PAUSED.format("left")
    world.trees.handle(GroupMoved(6, place("left", 9, tree=1), 0))
    assert world.agent.obstacles == {0: "", 2: ""}


def test_a_plane_that_is_down_obstructs_its_rail(world: World) -> None:
    world.trees.handle(PlaneDown("right", "no tree joins the ranks"))
    assert world.agent.obstacles == {0: "", 2: "plane 'right' is down: no tree joins the ranks"}
    world.trees.handle(PlaneUp("right"))
    assert world.agent.obstacles == {0: "", 2: ""}


@pytest.mark.parametrize("world", [{"recover": False}], indirect=True)
def test_what_was_said_before_is_told_when_recovery_begins(world: World) -> None:
    world.trees.handle(PlaneDown("left", "no tree"))
    assert not world.agent.obstacles
    world.trees.recover(without_trees=True)
    assert world.agent.obstacles[0] == "plane 'left' is down: no tree"


def test_a_lost_lease_leaves_the_other_rails(world: World) -> None:
    world.trees.lose("lease 7 is unknown")
    assert world.agent.obstacles == {0: "lease 7 is unknown", 2: "lease 7 is unknown"}
    world.trees.handle(PlaneUp("left"))
    assert world.agent.obstacles[0] == "lease 7 is unknown"
    assert world.agent.failure is None


@pytest.mark.parametrize(
    "world", [{"others": False}, {"recover": False}], indirect=True, ids=["only trees", "no recovery"]
)
def test_a_lost_lease_ends_everything_that_cannot_go_on(world: World) -> None:
    world.trees.lose("lease 7 is unknown")
    assert world.agent.failure is not None
    assert world.agent.failure.message == "lease 7 is unknown"


def test_a_tree_that_cannot_go_on_is_done_without(world: World) -> None:
    world.agent.impossible = True
    world.trees.handle(GroupPaused("right", 0, 7, "a switch is gone"))
    world.trees.handle(GroupMoved(7, place("right", 8), 12))
    assert world.agent.obstacles[2] == "its tree cannot go on as group 8 from chunk 12: no such group"
    assert world.agent.failure is None
