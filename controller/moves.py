# SPDX-License-Identifier: Apache-2.0
"""Move trees whose switches or links have died: pause, collect every rank's position, place again, resume.

A move loses no sum and counts no sum twice. A paused rank sends nothing and ignores packets that still
arrive, so positions do not change any more. A rank is never further ahead of its first chunk without a
result than the group's slots. So every rank can still contribute all chunks from the lowest position on. The
new group has another number and unused serial numbers, so packets of the old group do not match.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from itertools import pairwise

from railweave.controller.desired import Aggregation
from railweave.controller.errors import Refused, SwitchUnavailable, UnknownLease
from railweave.controller.fabric import Fabric
from railweave.controller.jobs import Group, Lease, Pause, RailTree
from railweave.controller.placement import Placement
from railweave.errors import explain
from railweave.v1 import controller_pb2 as pb

LAST_RESORT_S = 0.5  # until a plane without a tree tries suspected links again
ATTEMPTS, RETRY_S = 10, 0.1  # to write a tree's entries, while switches do not answer

LOG = logging.getLogger(__name__)

Running = Callable[[], Iterable[Group]]


class Moves:
    """All moves in progress."""

    def __init__(
        self,
        fabric: Fabric,
        placement: Placement,
        running: Running,
        lost: Callable[[Lease, str], None],
        deadline_s: float,
    ) -> None:
        """Move trees of `running` jobs. Call `lost` for a rank that does not answer within `deadline_s`."""
        self._fabric = fabric
        self._placement = placement
        self._running = running
        self._lost = lost
        self._deadline_s = deadline_s
        self._searches: set[asyncio.Task[None]] = set()

    # ------------------------------------------------------------ causes of moves

    def groups_lost(self, groups: frozenset[int], reason: str) -> None:
        """Move these groups, even if no place is known yet."""
        for group, tree in self._trees(groups):
            self.pause(group, tree, reason)

    def groups_at_risk(self, groups: frozenset[int], reason: str) -> None:
        """Move those of these groups that have another place. The others may still work."""
        search = asyncio.create_task(self._pause_movable(groups, reason), name="find other places")
        self._searches.add(search)
        search.add_done_callback(self._searches.discard)

    async def _pause_movable(self, groups: frozenset[int], reason: str) -> None:
        for group, tree in self._trees(groups):
            still = tree.placed is not None and tree.placed.group in groups
            if still and not group.closed and self._placement.possible(group, tree):
                self.pause(group, tree, reason)
            await asyncio.sleep(0)  # the first ranks need not wait until a place is found for the last

    def plane_changed(self, plane: str) -> None:
        """Try again to place the paused trees of a plane."""
        for group in list(self._running()):
            for tree in group.trees:
                if tree.plane == plane and tree.pause:
                    self._place_soon(group, tree, tree.pause)

    def stall(self, lease: Lease, told: pb.ReportStallRequest) -> None:
        """Handle a rank without results: avoid the links between it and the switch that answers no probes.

        If a switch has a wrong sum, the tree only needs other slots, perhaps of the same switches.
        """
        group, tree = self._find(lease, told.group)
        if tree.pause or tree.placed is None or (told.root_ok and not told.spoilt) or group.closed:
            return
        way = tree.placed.tree.way(lease.rank)
        host = self._placement.hosts(group, tree.rail)[lease.rank].nic.host
        if told.spoilt:
            self.pause(group, tree, f"rank {lease.rank} ({host}) gets a sum without the ranks' seal")
            return
        hops = list(pairwise(way)) if told.first_switch_ok else [(host, way[0])]
        if not hops:
            return  # the first switch is the root, and it answers
        self._fabric.suspect(tree.plane, [frozenset(hop) for hop in hops])
        silent = "its root" if told.first_switch_ok else f"switch {way[0]}"
        self.pause(group, tree, f"rank {lease.rank} ({host}) gets no answer from {silent}")

    def _trees(self, groups: frozenset[int]) -> list[tuple[Group, RailTree]]:
        return [
            (group, tree)
            for group in self._running()
            for tree in group.trees
            if tree.placed and tree.placed.group in groups
        ]

    def _find(self, lease: Lease, number: int) -> tuple[Group, RailTree]:
        tree = lease.group.tree(lease.rank, number)
        if tree is None:
            raise UnknownLease(
                f"rank {lease.rank} of job {lease.group.job!r} is in no group {number}",
                "the number of one of its groups",
                "use the same release at both ends",
            )
        return lease.group, tree

    # ------------------------------------------------------------ one move

    def pause(self, group: Group, tree: RailTree, reason: str) -> None:
        """Pause a tree and ask every rank for its position. A repeated call changes nothing."""
        if tree.pause or group.closed:
            return
        LOG.warning("job %s: rail %s, tree %d is paused: %s", group.job, tree.rail, tree.index, reason)
        tree.pause = Pause(reason)
        loop = asyncio.get_running_loop()
        tree.pause.timer = loop.call_later(self._deadline_s, self._overdue, group, tree)
        for rank in tree.numbers:
            _ask(group.leases[rank], tree, reason)
        if group.closing:
            self._down(group, tree, tree.pause, _stays_paused("a rank", reason))

    def ask_again(self, lease: Lease) -> None:
        """Ask a rank with a new stream again, because its answers may have been lost with the old one."""
        for tree in lease.group.trees:
            if tree.pause and lease.rank in tree.numbers.keys() - tree.pause.positions.keys():
                _ask(lease, tree, tree.pause.reason)

    def position(self, lease: Lease, number: int, position: int) -> None:
        """Record a rank's position. The last answer starts the move."""
        group, tree = self._find(lease, number)
        if tree.pause and not group.closed:
            tree.pause.positions[lease.rank] = position
            self._place_soon(group, tree, tree.pause)

    def left(self, lease: Lease) -> None:
        """Handle a rank that has left. A paused tree of its job cannot move without this rank."""
        for tree in lease.group.trees:
            if tree.pause:
                reason = _stays_paused(f"rank {lease.rank}", tree.pause.reason)
                self._down(lease.group, tree, tree.pause, reason)

    def forget(self, group: Group) -> None:
        """Cancel the moves of a job that has ended."""
        for tree in group.trees:
            if tree.pause and tree.pause.timer:
                tree.pause.timer.cancel()

    def _overdue(self, group: Group, tree: RailTree) -> None:
        if not (pause := tree.pause):
            return
        for rank in tree.numbers.keys() - pause.positions.keys():
            lease = group.leases[rank]
            if not lease.left:
                reason = f"has not reported its progress within {self._deadline_s:g} s: {pause.reason}"
                self._lost(lease, reason)

    def _place_soon(self, group: Group, tree: RailTree, pause: Pause) -> None:
        """Start placing a tree if all ranks have answered."""
        if len(pause.positions) < len(tree.numbers) or group.closing:
            return
        if pause.timer:
            pause.timer.cancel()
        if pause.placing and not pause.placing.done():
            pause.again = True
            return
        pause.placing = asyncio.create_task(self._place(group, tree, pause), name=f"move {group.job}")

    async def _place(self, group: Group, tree: RailTree, pause: Pause) -> None:
        if tree.placed:
            self._fabric.remove(tree.placed.group)
            tree.placed = None
        attempts = ATTEMPTS
        while not group.closed:
            pause.again = False
            try:
                placed = await self._placement.again(group, tree)
            except SwitchUnavailable as unavailable:
                if attempts := attempts - 1:
                    await asyncio.sleep(RETRY_S)  # until the switch is known to be dead, or answers again
                    continue
                if pause.again:
                    attempts = 1  # this switch may answer again
                    continue
                self._down(group, tree, pause, str(unavailable))
                return
            except Refused as refused:
                if pause.again:
                    continue
                self._down(group, tree, pause, str(refused))
                return
            except Exception as error:
                LOG.exception("moving a tree of job %s", group.job)
                failed = explain(
                    f"the controller failed: {error}", "a new place", "read the controller's log"
                )
                self._down(group, tree, pause, failed)
                return
            if not group.closed and self._fabric.intact(placed):
                self._moved(group, tree, pause, placed)
                return
            self._fabric.remove(placed.group)

    def _moved(self, group: Group, tree: RailTree, pause: Pause, placed: Aggregation) -> None:
        LOG.warning("job %s: rail %s, tree %d is moved", group.job, tree.rail, tree.index)
        old, resume_from = tree.numbers, min(pause.positions.values())
        tree.put(placed)
        tree.pause = None
        tree.moves += 1
        for rank in old:
            place = self._placement.message(tree, rank)
            moved = pb.GroupMoved(group=old[rank], place=place, resume_from=resume_from)
            group.leases[rank].send(pb.Event(group_moved=moved))
        still_down = any(t.pause and t.pause.down for t in group.trees if t.plane == tree.plane)
        if pause.down and not still_down:
            group.notify(pb.Event(plane_up=pb.PlaneUp(plane=tree.plane)))

    def _down(self, group: Group, tree: RailTree, pause: Pause, reason: str) -> None:
        """Notify the ranks, once, that there is no place now. Let suspicions expire soon as a last resort."""
        self._fabric.health.forget_soon(tree.plane, LAST_RESORT_S)
        if not pause.down:
            pause.down = True
            LOG.warning("job %s: plane %s is down: %s", group.job, tree.plane, reason)
            group.notify(pb.Event(plane_down=pb.PlaneDown(plane=tree.plane, reason=reason)))


def _stays_paused(who: str, reason: str) -> str:
    return explain(f"{who} has left, so its tree stays paused: {reason}", "all ranks", "start the job again")


def _ask(lease: Lease, tree: RailTree, reason: str) -> None:
    """Ask a rank for its position on a paused tree."""
    number = tree.numbers[lease.rank]
    paused = pb.GroupPaused(rail=tree.rail, tree=tree.index, group=number, reason=reason)
    lease.send(pb.Event(group_paused=paused))
