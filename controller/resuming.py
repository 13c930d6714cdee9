# SPDX-License-Identifier: Apache-2.0
"""Resume jobs of an earlier controller process: their ranks present their leases, and switches confirm them.

A controller keeps nothing on disk. The ranks of a running job report the state that they got when they
joined. Their reports on ina rails must agree with the switches' tables (`Fabric.adopt`). Ranks have a
limited time after the controller's start. Ranks that are still missing then are lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from railweave.controller import requests
from railweave.controller.composition import Member
from railweave.controller.errors import AlreadyJoined, InvalidRequest
from railweave.controller.requests import SAME_RELEASE, JoinRequest
from railweave.controller.slots import MIN_SLOTS
from railweave.controller.tables import MAX_GROUP
from railweave.topologies.model import Topology
from railweave.v1 import controller_pb2 as pb

RESTART = "start the job again"
MAX_REASON = 1024  # characters of the reason why a rank is alone


@dataclass(frozen=True)
class Claim:
    """A rank's report on one tree of an ina rail: its group's number and virtual address, and its slots."""

    rail: str
    tree: int
    slots: int
    group: int
    virtual_ip: int
    paused: bool

    @property
    def what(self) -> tuple[str, int, int]:
        """The fields that all ranks must agree on, even if the controller died while it moved the group."""
        return self.rail, self.tree, self.slots


@dataclass
class Resuming:
    """A job whose ranks are presenting their leases."""

    size: int
    requests: dict[int, JoinRequest] = field(default_factory=dict)
    claims: dict[int, tuple[Claim, ...]] = field(default_factory=dict)  # by rank, in the same order
    rings: dict[str, list[Member]] = field(default_factory=dict)  # by rail

    @property
    def missing(self) -> list[int]:
        """The ranks that have not presented their leases yet."""
        return [rank for rank in range(self.size) if rank not in self.requests]

    def present(
        self, request: JoinRequest, claims: tuple[Claim, ...], rings: dict[str, list[Member]]
    ) -> None:
        """Add a rank. InvalidRequest, which names both sides, if the rank contradicts another one."""
        if request.rank in self.requests:
            raise AlreadyJoined(
                f"rank {request.rank} of job {request.job!r} has presented its lease before",
                "each rank once",
                SAME_RELEASE,
            )
        for other in self.requests.values():
            requests.agree(other, request)
        here = f"job {request.job!r}: rank {request.rank}"
        if self.requests and rings != self.rings:
            raise InvalidRequest(
                f"{here} reports other rings than the other ranks", "the same rings", RESTART
            )
        for rank, others in self.claims.items():
            shared = [c.what for c in claims if _joins(rings, c, rank)]
            if shared != [c.what for c in others if _joins(rings, c, request.rank)]:
                raise InvalidRequest(
                    f"{here} reports other trees than the other ranks", "the same trees", RESTART
                )
        if not all(_joins(rings, claim, request.rank) for claim in claims):
            raise InvalidRequest(f"{here} reports a tree of another rack", "trees of its own rack", RESTART)
        self.rings = rings
        self.claims[request.rank] = claims
        self.requests[request.rank] = request

    def trees(self) -> Iterator[dict[int, Claim]]:
        """Yield the ranks' claims on every tree, by rank."""
        reports: dict[tuple[str, int], dict[int, Claim]] = {}
        for rank, claims in sorted(self.claims.items()):
            for claim in claims:
                reports.setdefault((claim.rail, claim.tree), {})[rank] = claim
        yield from (reports[tree] for tree in sorted(reports))


def _joins(rings: Mapping[str, Sequence[Member]], claim: Claim, rank: int) -> bool:
    """Return whether the tree of a claim joins a rank. In a ring, a tree joins only one member's ranks."""
    ring = rings.get(claim.rail)
    return ring is None or (claim.tree < len(ring) and rank in ring[claim.tree].ranks)


def read(
    message: pb.Resume, topology: Topology
) -> tuple[JoinRequest, tuple[Claim, ...], dict[str, list[Member]]]:
    """Check a Resume. InvalidRequest names the given and the expected value."""
    requests.identity(message.job, message.rank, message.size)
    rails = requests.rail_offers(message.rails, message.size, topology)
    kinds = {rail.name: rail.kind for rail in rails}
    paused = frozenset(message.paused)
    claims = tuple(sorted((_claim(group, kinds.get, paused) for group in message.ina), key=lambda c: c.what))
    if len({(claim.rail, claim.tree) for claim in claims}) != len(claims):
        raise InvalidRequest("a tree is claimed twice", "each tree once", SAME_RELEASE)
    rings = {ring.rail: _ring(ring, kinds.get, message.size) for ring in message.rings}
    request = JoinRequest(message.job, message.rank, message.size, rails, requests.MAX_DEADLINE_S)
    return request, claims, rings


def _ring(ring: pb.Ring, kind: Callable[[str], str | None], size: int) -> list[Member]:
    members = [Member(tuple(member.ranks), member.reason[:MAX_REASON]) for member in ring.members]
    ranks = sorted(rank for member in members for rank in member.ranks)
    if kind(ring.rail) != "ina" or ranks != list(range(size)):
        raise InvalidRequest(
            f"ring of rail {ring.rail[:64]!r}", "all ranks of an ina rail, once each", SAME_RELEASE
        )
    return members


def _claim(group: pb.InaGroup, kind: Callable[[str], str | None], paused: frozenset[int]) -> Claim:
    if kind(group.rail) != "ina":
        raise InvalidRequest(
            f"a tree of rail {group.rail[:64]!r}", "an ina rail that this rank offers", SAME_RELEASE
        )
    if group.slots < MIN_SLOTS or group.slots & (group.slots - 1) or not 0 < group.group <= MAX_GROUP:
        raise InvalidRequest(
            f"group {group.group} of {group.slots} slots",
            f"1 to {MAX_GROUP}, with a power of two as slots",
            SAME_RELEASE,
        )
    address = requests.ip_number(group.virtual_address, f"rail {group.rail!r}")
    return Claim(group.rail, group.tree, group.slots, group.group, address, group.group in paused)
