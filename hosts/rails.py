# SPDX-License-Identifier: Apache-2.0
"""Open a host's rails and connect them with the rails of the other ranks: offer, then connect."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from railweave._native.agent import Agent, Failure, FailureKind, RdmaPlace
from railweave.errors import parts
from railweave.hosts.errors import InvalidOption, JoinTimeout, RailDown
from railweave.hosts.events import AlgorithmJob, InaGroup, RailOffer, Ring, Sums
from railweave.hosts.failures import raise_failure
from railweave.hosts.interfaces import Interface, interface
from railweave.hosts.options import Options, RailSpec
from railweave.topologies.model import RAIL_KINDS

ROCE_PORT = 4791
ANY_PORT = 1  # of a rail whose port the controller chooses
RDMA_PLACES = {"any": RdmaPlace.ANY, "device": RdmaPlace.DEVICE, "software": RdmaPlace.USER_SPACE}
LEAST_SILENCE_S = 0.5  # of a lost rank, with recovery: the silence of a single rail must be noticed first
FOREVER_S = 1e8
JOIN_S = 2.0  # ranks join their rails within milliseconds of each other


class Members(Protocol):
    """The part of a membership that rails need."""

    @property
    def secret(self) -> bytes:
        """SECRET_BYTES random bytes that only the ranks of this job have."""

    @property
    def members(self) -> Mapping[int, Sequence[RailOffer]]:
        """The offered rails, by rank."""

    @property
    def groups(self) -> Mapping[str, Sequence[InaGroup]]:
        """The places of this rank's ina rails, by rail: one per tree."""

    @property
    def rings(self) -> Mapping[str, Ring]:
        """The rings of ina rails that have no tree of all ranks, by rail."""

    @property
    def sums(self) -> Mapping[str, Sums]:
        """How switches sum the connections of netreduce rails, by rail."""

    @property
    def algorithms(self) -> Mapping[str, AlgorithmJob]:
        """The jobs of algorithms that carry rails, by rail."""

    @property
    def refusals(self) -> Mapping[str, str]:
        """Why the controller refuses rails, by rail."""


@dataclass(frozen=True)
class Opening:
    """A rail that is open on this host and offered, but not connected yet."""

    spec: RailSpec
    index: int  # in the agent
    at: Interface
    port: int
    queue_pairs: tuple[int, ...] = ()
    control_port: int = 0  # UDP and TCP, for recovery; 0: none
    sum_queue_pairs: tuple[int, ...] = ()
    device: bool = False  # an RDMA device has the queue pairs and chose their numbers
    where: str = ""  # of RDMA: the device, or why none is used


def open_rails(agent: Agent, options: Options) -> list[Opening]:
    """Open rails on their interfaces. Two or more get ports for recovery. InvalidOption names the problem."""
    rails = [open_rail(agent, spec, options) for spec in options.rails]
    if len(rails) < 2:
        return rails
    return [replace(rail, control_port=_open_control(agent, rail)) for rail in rails]


def _open_control(agent: Agent, rail: Opening) -> int:
    try:
        return int(agent.open_control(rail.index))
    except (OSError, RuntimeError) as error:
        raise _cannot_open(f"{rail.spec.name!r} for recovery", rail.at, error) from error


def open_rail(agent: Agent, spec: RailSpec, options: Options) -> Opening:
    """Open a rail on its interface. InvalidOption names the problem."""
    at = interface(spec.interface)
    peer_timeout_s = options.peer_timeout_s
    try:
        match spec.kind:
            case "tcp":
                index, port = agent.add_tcp(spec.name, at.address, at.name, spec.rate_bps, peer_timeout_s)
                return Opening(spec, index, at, port)
            case "ina":
                index, port = agent.add_ina(spec.name, at.address, at.name, spec.rate_bps)
                return Opening(spec, index, at, port)
            case "algorithm":
                index = agent.add_algorithm(spec.name, at.address, at.name, spec.rate_bps)
                return Opening(spec, index, at, ANY_PORT)
            case "rdma" | "netreduce":
                sums = spec.kind == "netreduce"
                place = RDMA_PLACES[options.rdma]
                link = (spec.name, at.address, at.name, spec.rate_bps)
                index, queue_pairs = agent.add_rdma(*link, peer_timeout_s, sums, place, options.traffic_class)
                device, where = agent.rdma_place(index)
                for_sums = tuple(agent.sum_numbers(index)) if sums else ()
                return Opening(
                    *(spec, index, at, ROCE_PORT, tuple(queue_pairs)),
                    sum_queue_pairs=for_sums,
                    device=device,
                    where=where,
                )
    except (OSError, RuntimeError, ValueError) as error:
        raise _cannot_open(repr(spec.name), at, error) from error
    raise InvalidOption(
        f"rail {spec.name!r} is of kind {spec.kind!r}", f"one of {', '.join(RAIL_KINDS)}", "correct the kind"
    )


def _cannot_open(rail: str, at: Interface, error: Exception) -> InvalidOption:
    given, expected, do = parts(str(error))
    return InvalidOption(
        f"cannot open rail {rail} on {at.name} ({at.address}): {given}",
        expected or "an interface that can carry it",
        do or "correct the interface or the kind of the rail",
    )


def offer(rail: Opening) -> RailOffer:
    """Return the data of an open rail that the other ranks need."""
    return RailOffer(
        name=rail.spec.name,
        kind=rail.spec.kind,
        plane=rail.spec.name,
        address=rail.at.address,
        mac=rail.at.mac,
        port=rail.port,
        queue_pairs=rail.queue_pairs,
        rate_bps=rail.spec.rate_bps,
        control_port=rail.control_port,
        sum_queue_pairs=rail.sum_queue_pairs,
        device=rail.device,
    )


def can_recover(rails: Sequence[Opening], members: Members) -> bool:
    """Return whether the ranks can agree on the working rails.

    Recovery needs two rails in use, and a control port from every rank. Older versions offer no such port.
    """
    offers = [one for rail in rails for one in offers_of(rail.spec.name, members)]
    return len(rails) - len(members.refusals) >= 2 and all(one.control_port for one in offers)


def connect_rails(
    agent: Agent, rails: Sequence[Opening], members: Members, timeout_s: float
) -> dict[int, str]:
    """Connect open rails with the other ranks. JoinTimeout names the ranks that did not connect.

    If rails can be excluded, a rail that cannot be connected within JOIN_S is no error as long as another
    rail works. The result has the index of each such rail, and the reason.
    """
    end = time.monotonic() + timeout_s
    used = [rail for rail in rails if rail.spec.name not in members.refusals]
    recovers = can_recover(rails, members)
    missing: dict[int, str] = {}
    for rail in used:
        left_s = max(0.0, end - time.monotonic())
        needed = not recovers or (rail is used[-1] and len(missing) == len(used) - 1)
        try:
            _connect_rail(agent, rail, members, left_s if needed else min(left_s, JOIN_S))
        except (OSError, RuntimeError, JoinTimeout) as error:
            if needed:  # tell the other ranks, which may have connected all rails
                agent.fail(Failure(FailureKind.RAIL_DOWN, -1, str(error), rail.spec.name))
                if isinstance(error, JoinTimeout):
                    raise
                raise RailDown(rail.spec.name, str(error)) from error
            missing[rail.index] = str(error)
        raise_failure(agent.failure())
    return missing


def _connect_rail(agent: Agent, rail: Opening, members: Members, timeout_s: float) -> None:
    """Connect one rail. `Trees` attaches the trees of an ina rail."""
    offers = offers_of(rail.spec.name, members)
    match rail.spec.kind:
        case "tcp" | "ina":
            _connect_tcp(agent, rail, offers, timeout_s)
        case "rdma" | "netreduce":
            sums = members.sums.get(rail.spec.name)
            if sums and sums.window_packets:
                agent.sum_rdma(rail.index, [_three(o.sum_queue_pairs) for o in offers], sums.window_packets)
            members_at = [(o.address, o.mac, list(o.queue_pairs)) for o in offers]
            agent.connect_rdma(rail.index, members_at, [rank for rank, o in enumerate(offers) if o.device])


def enable_recovery(
    agent: Agent,
    rails: Sequence[Opening],
    members: Members,
    peer_timeout_s: float,
    missing: Mapping[int, str],
) -> None:
    """Let the ranks agree from now on which rails work. The `missing` rails do not work yet."""
    offers = [offers_of(rail.spec.name, members) for rail in rails]
    places = [[(one.address, one.control_port) for one in of] for of in offers]
    silence_s = max(peer_timeout_s, LEAST_SILENCE_S) if peer_timeout_s else FOREVER_S
    rates_bps = [min(one.rate_bps for one in of) for of in offers]
    agent.enable_recovery(places, rates_bps, silence_s)
    for rail in rails:
        if rail.spec.name in members.refusals:
            agent.set_obstacle(rail.index, f"refused: {members.refusals[rail.spec.name]}")
        if rail.index in missing:
            agent.suspect(rail.index, missing[rail.index])


def _three(numbers: Sequence[int]) -> tuple[int, int, int]:
    out, into, alias = numbers
    return out, into, alias


def _connect_tcp(agent: Agent, rail: Opening, offers: Sequence[RailOffer], timeout_s: float) -> None:
    places = [(offer.address, offer.port) for offer in offers]
    missing = agent.connect_tcp(rail.index, places, timeout_s)
    if missing and agent.failure() is None:
        ranks = ", ".join(map(str, missing))
        why = agent.last_refusal(rail.index)
        raise JoinTimeout(
            f"rail {rail.spec.name!r} on {rail.at.name} ({rail.at.address}): no connection with rank {ranks} "
            f"after {timeout_s:g} s{f' ({why})' if why else ''}",
            "interfaces that are up on both hosts, and no firewall between them",
            "check `ip link` and `nft list ruleset` there",
        )


def offers_of(name: str, members: Members) -> list[RailOffer]:
    """Return the rail's offers in order of rank."""
    by_rank = {
        rank: offer for rank, offers in members.members.items() for offer in offers if offer.name == name
    }
    without = sorted(set(members.members) - set(by_rank))
    if without:
        raise InvalidOption(
            f"rail {name!r} is not offered by rank {', '.join(map(str, without))}",
            "the same rail names on all ranks",
            "correct RAILWEAVE_RAILS or rails= there",
        )
    return [by_rank[rank] for rank in sorted(by_rank)]
