# SPDX-License-Identifier: Apache-2.0
"""Jobs that ran before this controller did: their ranks present their leases, their switches hold the proof.

A controller keeps nothing on disk. What it needs of a job that runs on is what its ranks were told when they
joined; of an ina rail it believes only what the switches' tables say too (`Fabric.adopt`). Ranks have a
limited time after the controller's start; then whoever is missing is lost.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from ipaddress import AddressValueError, IPv4Address

from railweave.controller import requests
from railweave.controller.errors import AlreadyJoined, InvalidRequest
from railweave.controller.requests import JoinRequest
from railweave.topologies.model import Topology
from railweave.v1 import controller_pb2 as pb


@dataclass(frozen=True)
class Claim:
    """What a rank says of one ina rail: its group's number and virtual address."""

    rail: str
    group: int
    virtual_ip: int


@dataclass
class Resuming:
    """A job of which some ranks have presented themselves."""

    size: int
    requests: dict[int, JoinRequest] = field(default_factory=dict)
    claims: frozenset[Claim] = frozenset()

    @property
    def missing(self) -> list[int]:
        """The ranks that have not presented themselves yet."""
        return [rank for rank in range(self.size) if rank not in self.requests]

    def present(self, request: JoinRequest, claims: frozenset[Claim]) -> None:
        """Take a rank in; InvalidRequest, naming both sides, if it contradicts another."""
        if request.rank in self.requests:
            raise AlreadyJoined(f"rank {request.rank} of job {request.job!r} has presented its lease before")
        for other in self.requests.values():
            requests.agree(other, request)
        if self.requests and claims != self.claims:
            raise InvalidRequest(
                f"job {request.job!r}: rank {request.rank} tells of other groups than the rest"
            )
        self.claims = claims
        self.requests[request.rank] = request


def read(message: pb.Resume, topology: Topology) -> tuple[JoinRequest, frozenset[Claim]]:
    """Check a Resume; InvalidRequest says what was given and what was expected."""
    requests.identity(message.job, message.rank, message.size)
    rails = requests.rail_offers(message.rails, message.size, topology)
    kinds = {rail.name: rail.kind for rail in rails}
    claims = frozenset(_claim(group, kinds.get) for group in message.ina)
    if len({claim.rail for claim in claims}) != len(message.ina):
        raise InvalidRequest("a rail is claimed twice")
    return JoinRequest(message.job, message.rank, message.size, rails, requests.MAX_DEADLINE_S), claims


def _claim(group: pb.InaGroup, kind: Callable[[str], str | None]) -> Claim:
    if kind(group.rail) != "ina":
        raise InvalidRequest(f"{group.rail[:64]!r} is claimed to be an ina rail, but not offered as one")
    try:
        return Claim(group.rail, group.group, int(IPv4Address(group.virtual_address)))
    except AddressValueError:
        raise InvalidRequest(
            f"rail {group.rail!r}: {group.virtual_address[:64]!r} is no IPv4 address"
        ) from None
