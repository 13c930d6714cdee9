# SPDX-License-Identifier: Apache-2.0
"""The aggregation trees of a rank's ina rails: their places, their moves, and their stalls."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from railweave._native.agent import Agent, Failure, FailureKind, Stall
from railweave.hosts.events import GroupMoved, GroupPaused, InaGroup, PlaneDown, PlaneUp
from railweave.hosts.rails import offers_of

if TYPE_CHECKING:
    from railweave.hosts.membership import Membership

STALL_POLL_S = 1.0
STALLED_FOR_S = 3.0  # age up to which a reported stall counts; a stalled tree reports once a second


class Trees:
    """Applies the controller's events to trees, in the watching thread, and reports stalled trees to it.

    A plane that is down is no error yet. With recovery, `Trees` tells the agent the obstacle of the rail,
    and the other rails take over until the obstacle is gone. Without recovery, calls wait until their
    deadline for the controller to move the groups to a working place.
    """

    def __init__(self, agent: Agent) -> None:
        """Begin without trees."""
        self._agent = agent
        self._rails: dict[str, int] = {}  # indices in the agent, by name
        self._lock = threading.Lock()
        self._membership: Membership | None = None
        self._paused: dict[int, str] = {}  # groups, and their rails
        self._down: dict[str, str] = {}  # by plane, which has the rail's name
        self._lost: dict[str, str] = {}  # by rail: why its trees are lost for good
        self._lease_lost = ""  # why the controller does not know the trees any more
        self._recovering = False  # whether other rails take over
        self._alone = True  # whether all rails need trees
        self._stalls: dict[str, tuple[float, Stall]] = {}  # by rail: the last stall and its time
        self._closed = threading.Event()
        # Made when it starts: a thread that has not run yet would be a reference cycle with this object.
        self._reporter: threading.Thread | None = None

    def attach(
        self,
        membership: Membership,
        rails: Mapping[str, int],
        multicast_roots: int = 0,
        only_rail: bool = False,
    ) -> None:
        """Attach the places from the controller, which may have moved already, and begin to report stalls.

        `rails` are the agent's indices of the rails with trees, by name. `multicast_roots` is as in Options.
        If a switch has a wrong sum, the controller moves the tree of an `only_rail`. With other rails, the
        rail restarts and the other rails repeat its part.
        """
        with self._lock:
            self._membership = membership
            self._rails = dict(rails)
            for rail, index in self._rails.items():
                self._attach(index, rail, membership, multicast_roots, only_rail)
            for group, rail in self._paused.items():
                membership.report_position(group, self._pause(rail, group))
            self._give_up_all()
        if rails:
            self._reporter = threading.Thread(
                target=self._report_stalls, name="railweave stalls", daemon=True
            )
            self._reporter.start()

    def _attach(
        self, index: int, rail: str, membership: Membership, multicast_roots: int, only_rail: bool
    ) -> None:
        """Attach a rail's places: in trees of all ranks, or in a ring and in the tree of this rank's rack."""
        members = [(each.address, each.port) for each in offers_of(rail, membership)]
        ring = membership.rings.get(rail)
        if ring:
            rack = self._agent.compose_ina(index, [list(ranks) for ranks in ring.members], ring.lanes)
            members = [members[rank] for rank in rack]
        if places := [_place(group) for group in membership.groups.get(rail, ())]:
            self._agent.attach_ina(index, places, members, multicast_roots, redo=only_rail and not ring)

    def recover(self, without_trees: bool) -> None:
        """Tell the agent of obstacles from now on, because the ranks can exclude a rail.

        `without_trees`: whether some rails need no trees.
        """
        with self._lock:
            self._recovering = True
            self._alone = not without_trees
            self._report_obstacles()

    def lose(self, reason: str) -> None:
        """Give up all trees, because the controller does not know them any more."""
        with self._lock:
            self._lease_lost = reason
            self._give_up_all()
            self._report_obstacles()

    def _give_up_all(self) -> None:
        if self._lease_lost:
            for rail in self._rails:
                self._give_up(rail, self._lease_lost)

    def handle(self, event: GroupPaused | GroupMoved | PlaneDown | PlaneUp) -> None:
        """Apply an event from the controller. `attach` applies the events that come before it."""
        with self._lock:
            match event:
                case GroupPaused(rail, _, group, _):
                    self._paused[group] = rail
                    if self._membership is not None:
                        self._membership.report_position(group, self._pause(rail, group))
                case GroupMoved(group, place, resume_from):
                    self._paused.pop(group, None)
                    self._down.pop(place.rail, None)
                    self._stalls.pop(place.rail, None)
                    if self._membership is not None:
                        self._move(group, place, resume_from)
                case PlaneDown(plane, reason):
                    self._down[plane] = reason
                case PlaneUp(plane):
                    self._down.pop(plane, None)
            self._report_obstacles()

    def _report_obstacles(self) -> None:
        if self._recovering:
            for rail, index in self._rails.items():
                self._agent.set_obstacle(index, self._standing(rail))

    def _give_up(self, rail: str, reason: str) -> None:
        """Give up a rail's trees. Without recovery, or without other rails, the communicator fails."""
        self._lost[rail] = reason
        if not self._recovering or (self._alone and len(self._lost) == len(self._rails)):
            self._agent.fail(Failure(FailureKind.RAIL_DOWN, -1, reason, rail))

    def _pause(self, rail: str, group: int) -> int:
        return self._agent.pause_ina(self._rails[rail], group)

    def _move(self, group: int, place: InaGroup, resume_from: int) -> None:
        try:
            self._agent.resume_ina(self._rails[place.rail], group, _place(place), resume_from)
        except (OSError, ValueError, RuntimeError) as error:
            reason = f"its tree cannot go on as group {place.group} from chunk {resume_from}: {error}"
            self._give_up(place.rail, reason)

    def _report_stalls(self) -> None:
        while not self._closed.is_set():
            reported = self._agent.next_stall(STALL_POLL_S)
            if reported is None:
                continue
            index, stall = reported
            with self._lock:
                if not stall.spoilt:
                    name = next(name for name, other in self._rails.items() if other == index)
                    self._stalls[name] = time.monotonic(), stall
                assert self._membership is not None  # noqa: S101 - the thread starts with it
                self._membership.report_stall(stall)

    def planes_down(self) -> Mapping[str, str]:
        """Return why planes are down, by name."""
        with self._lock:
            return dict(self._down)

    def obstacle(self, rail: str) -> str:
        """Return the known reason why a rail's calls wait; '' if they do not."""
        with self._lock:
            if standing := self._standing(rail):
                return standing
            at, stall = self._stalls.get(rail, (-STALLED_FOR_S, None))
            if stall is None or time.monotonic() - at > STALLED_FOR_S:
                return ""
            silent = "its root does not" if stall.first_switch_ok else "its first switch does not"
            return f"plane {rail!r}: {silent} answer"

    def _standing(self, rail: str) -> str:
        """Return the controller's reason why a rail cannot carry anything; '' if it can."""
        if rail in self._lost:
            return self._lost[rail]
        if rail in self._down:
            return f"plane {rail!r} is down: {self._down[rail]}"
        if rail in self._paused.values():
            return f"plane {rail!r}: its group is paused, and the controller has not moved it"
        return ""

    def close(self) -> None:
        """Stop reporting. The end of the agent ends the wait for a stall."""
        self._closed.set()

    def join(self) -> None:
        """Wait for the end of the reporting thread."""
        if self._reporter is not None:
            self._reporter.join()


def _place(group: InaGroup) -> tuple[int, str, int, int, int]:
    return group.group, group.virtual_address, group.child, group.slots, group.lanes
