# SPDX-License-Identifier: Apache-2.0
"""Jobs that ran before this controller did: their ranks present their leases, their switches hold the proof.

A controller keeps nothing on disk. What it needs of a running job, the ranks were given when they
joined; reports on ina rails must agree with the switches' tables (`Fabric.adopt`). Ranks have a
limited time after the controller's start; then whoever is missing is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from railweave.controller import requests
from railweave.controller.errors import AlreadyJoined, InvalidRequest
from railweave.controller.requests import JoinRequest
from railweave.controller.slots import MIN_SLOTS
from railweave.controller.tables import MAX_GROUP
from railweave.topologies.model import Topology
from railweave.v1 import controller_pb2 as pb


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
        """What all ranks agree on, wherever a controller that died had come to in moving the group."""
        return self.rail, self.tree, self.slots


@dataclass
class Resuming:
    """A job of which some ranks have presented themselves."""

    size: int
    requests: dict[int, JoinRequest] = field(default_factory=dict)
    claims: dict[int, tuple[Claim, ...]] = field(default_factory=dict)  # by rank, in the same order

    @property
    def missing(self) -> list[int]:
        """The ranks that have not presented themselves yet."""
        return [rank for rank in range(self.size) if rank not in self.requests]

    def present(self, request: JoinRequest, claims: tuple[Claim, ...]) -> None:
        """Take a rank in; InvalidRequest, naming both sides, if it contradicts another."""
        if request.rank in self.requests:
            raise AlreadyJoined(f"rank {request.rank} of job {request.job!r} has presented its lease before")
        for other in self.requests.values():
            requests.agree(other, request)
        for others in self.claims.values():
            if [claim.what for claim in claims] != [claim.what for claim in others]:
                raise InvalidRequest(
                    f"job {request.job!r}: rank {request.rank} reports other trees than the other ranks"
                )
        self.claims[request.rank] = claims
        self.requests[request.rank] = request

    def trees(self) -> Iterator[dict[int, Claim]]:
        """The ranks' reports on every tree, by rank."""
        for place in range(len(next(iter(self.claims.values()), ()))):
            yield {rank: claims[place] for rank, claims in self.claims.items()}


def read(message: pb.Resume, topology: Topology) -> tuple[JoinRequest, tuple[Claim, ...]]:
    """Check a Resume; InvalidRequest names what was given and what was expected."""
    requests.identity(message.job, message.rank, message.size)
    rails = requests.rail_offers(message.rails, message.size, topology)
    kinds = {rail.name: rail.kind for rail in rails}
    paused = frozenset(message.paused)
    claims = tuple(sorted((_claim(group, kinds.get, paused) for group in message.ina), key=lambda c: c.what))
    if len({(claim.rail, claim.tree) for claim in claims}) != len(claims):
        raise InvalidRequest("a tree is claimed twice")
    return JoinRequest(message.job, message.rank, message.size, rails, requests.MAX_DEADLINE_S), claims


def _claim(group: pb.InaGroup, kind: Callable[[str], str | None], paused: frozenset[int]) -> Claim:
    if kind(group.rail) != "ina":
        raise InvalidRequest(f"{group.rail[:64]!r} is claimed to be an ina rail, but not offered as one")
    if group.slots < MIN_SLOTS or group.slots & (group.slots - 1) or not 0 < group.group <= MAX_GROUP:
        raise InvalidRequest(f"group {group.group} of {group.slots} slots: no controller gives such a one")
    address = requests.ip_number(group.virtual_address, f"rail {group.rail!r}")
    return Claim(group.rail, group.tree, group.slots, group.group, address, group.group in paused)
