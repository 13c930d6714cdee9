# SPDX-License-Identifier: Apache-2.0
"""Check every field of the clients' messages. The rest of the controller relies on these checks."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address, IPv4Network

from railweave.controller.errors import InvalidRequest
from railweave.protocol import PROTOCOL
from railweave.topologies.model import ALGORITHM, P4_KINDS, RAIL_KINDS, Nic, Plane, Topology
from railweave.v1 import controller_pb2 as pb

SAME_RELEASE = "install the same railweave on the controller and all hosts"
CORRECT_FILE = "correct the address or MAC of this NIC in the cluster file"
MAX_SIZE = 1024  # ranks of a job
MAX_RAILS = 16
MAX_DEADLINE_S = 3600.0
MAX_QUEUE_PAIR = 2**24 - 1
JOB_NAME = re.compile(r"[A-Za-z0-9._:/@-]{1,128}")
RAIL_NAME = re.compile(r"[A-Za-z0-9._-]{1,32}")
MAC = re.compile(r"([0-9a-f]{2}:){5}[0-9a-f]{2}")


@dataclass(frozen=True)
class JoinRequest:
    """A rank's request after the checks. The rank waits for the other ranks for `deadline_s`."""

    job: str
    rank: int
    size: int
    rails: tuple[pb.RailOffer, ...]
    deadline_s: float
    protocol: int = PROTOCOL


def join_request(message: pb.JoinGroupRequest, topology: Topology) -> JoinRequest:
    """Check a JoinGroupRequest. InvalidRequest names the given and the expected value."""
    identity(message.job, message.rank, message.size)
    wait_s = message.deadline_s
    if not (math.isfinite(wait_s) and 0 < wait_s <= MAX_DEADLINE_S):
        raise InvalidRequest(
            f"deadline_s is {wait_s}", f"more than 0, up to {MAX_DEADLINE_S:g}", "correct timeout_s"
        )
    rails = rail_offers(message.rails, message.size, topology)
    return JoinRequest(message.job, message.rank, message.size, rails, wait_s, message.protocol)


def identity(job: str, rank: int, size: int) -> None:
    """Check the sender: job, rank and world size."""
    if not JOB_NAME.fullmatch(job):
        raise InvalidRequest(
            f"job name {job[:64]!r}", "1 to 128 letters, digits or any of ._:/@-", "choose another name"
        )
    if not 1 <= size <= MAX_SIZE:
        raise InvalidRequest(f"world size {size}", f"1 to {MAX_SIZE}", "correct the world size")
    if rank >= size:
        raise InvalidRequest(
            f"rank {rank}",
            f"0 to {size - 1}, because the world size is {size}",
            "correct the rank or the world size",
        )


def rail_offers(offers: Iterable[pb.RailOffer], size: int, topology: Topology) -> tuple[pb.RailOffer, ...]:
    """Check a rank's rails."""
    rails = tuple(offers)
    if not 1 <= len(rails) <= MAX_RAILS:
        raise InvalidRequest(f"{len(rails)} rails", f"1 to {MAX_RAILS}", "name other rails")
    names = [rail.name for rail in rails]
    for name in names:
        if not RAIL_NAME.fullmatch(name):
            raise InvalidRequest(
                f"rail name {name[:64]!r}", "1 to 32 letters, digits or any of ._-", "choose another name"
            )
        if names.count(name) > 1:
            raise InvalidRequest(f"rail name {name!r} is used twice", "different names", "rename one rail")
    for rail in rails:
        _check_rail(rail, size, topology)
    return rails


def _check_rail(rail: pb.RailOffer, size: int, topology: Topology) -> None:
    where = f"rail {rail.name!r}"
    if rail.kind not in RAIL_KINDS:
        raise InvalidRequest(
            f"{where}: kind {rail.kind[:32]!r}", f"one of {', '.join(RAIL_KINDS)}", "correct the kind"
        )
    try:
        plane = topology.plane(rail.plane)
    except KeyError:
        planes = ", ".join(plane.name for plane in topology.planes)
        raise InvalidRequest(
            f"{where}: plane {rail.plane[:64]!r}", f"one of {planes}", "name the rail after its plane"
        ) from None
    if rail.kind == ALGORITHM != plane.kind:
        raise InvalidRequest(
            f"{where}: kind {ALGORITHM} on plane {plane.name!r} of kind {plane.kind}",
            "a plane with an algorithm",
            "correct the kind, or the plane in the topology",
        )
    _check_addresses(where, rail, plane)
    if not 1 <= rail.port <= 65535:
        raise InvalidRequest(f"{where}: port {rail.port}", "1 to 65535", SAME_RELEASE)
    if rail.control_port > 65535:
        expected = "1 to 65535, or 0 for no recovery"
        raise InvalidRequest(f"{where}: control port {rail.control_port}", expected, SAME_RELEASE)
    pairs = rail.queue_pairs
    if pairs and (len(pairs) != size or max(pairs) > MAX_QUEUE_PAIR):
        expected = f"none or {size}, each up to {MAX_QUEUE_PAIR}"
        raise InvalidRequest(f"{where}: {len(pairs)} queue pairs", expected, SAME_RELEASE)
    sums = rail.sum_queue_pairs
    if len(sums) != (3 if rail.kind == "netreduce" else 0) or max(sums, default=0) > MAX_QUEUE_PAIR:
        expected = f"3 of a netreduce rail, each up to {MAX_QUEUE_PAIR}, else none"
        raise InvalidRequest(f"{where}: {len(sums)} queue pairs for sums", expected, SAME_RELEASE)


def _check_addresses(where: str, rail: pb.RailOffer, plane: Plane) -> None:
    network, mac = IPv4Network(plane.network), rail.mac.lower()
    if IPv4Address(ip_number(rail.address, where)) not in network:
        raise InvalidRequest(
            f"{where}: address {rail.address}",
            f"an address of plane {plane.name!r} ({network})",
            CORRECT_FILE,
        )
    if mac and not MAC.fullmatch(mac):
        raise InvalidRequest(
            f"{where}: MAC {rail.mac[:64]!r}", "the form 02:00:00:01:00:0a", "correct the MAC"
        )
    if rail.kind in P4_KINDS and mac != (known := nic(rail, plane).mac).lower():
        raise InvalidRequest(
            f"{where}: MAC {rail.mac or 'missing'}",
            f"{known}, which {rail.address} has in the topology",
            CORRECT_FILE,
        )


def ip_number(text: str, where: str) -> int:
    """Return an IPv4 address as an integer. InvalidRequest if the text is no address."""
    try:
        return int(IPv4Address(text))
    except AddressValueError:
        raise InvalidRequest(f"{where}: {text[:64]!r}", "an IPv4 address", "correct the address") from None


def nic(rail: pb.RailOffer, plane: Plane) -> Nic:
    """Return the topology's NIC with a rail's address. InvalidRequest if no NIC has it."""
    for known in plane.nics:
        if known.address == rail.address:
            return known
    raise InvalidRequest(
        f"rail {rail.name!r}: address {rail.address}", f"one of a NIC of plane {plane.name!r}", CORRECT_FILE
    )


def check_protocol(request: JoinRequest) -> None:
    """Refuse a rank whose build has another version of the protocol among ranks."""
    if request.protocol != PROTOCOL:
        raise InvalidRequest(
            f"job {request.job!r}: rank {request.rank} has version {request.protocol} of the ranks' protocol",
            f"version {PROTOCOL}",
            SAME_RELEASE,
        )


def agree(one: JoinRequest, other: JoinRequest) -> None:
    """Raise InvalidRequest, which names both sides, if the requests of two ranks of a job differ."""
    for what, of_one, of_other in (
        ("world size", one.size, other.size),
        ("rails", _signature(one), _signature(other)),
    ):
        if of_one != of_other:
            raise InvalidRequest(
                f"job {one.job!r}: {what} differs: rank {one.rank} has {of_one}, "
                f"rank {other.rank} has {of_other}",
                "the same on all ranks",
                "correct one of them",
            )
    for mine, yours in zip(one.rails, other.rails, strict=True):
        if (mine.address, mine.port) == (yours.address, yours.port):
            raise InvalidRequest(
                f"job {one.job!r}: ranks {one.rank} and {other.rank} report the same address of rail "
                f"{mine.name!r}: {mine.address}, port {mine.port}",
                "different addresses or ports",
                "give each host its own address",
            )


def _signature(request: JoinRequest) -> str:
    return ", ".join(f"{rail.name}={rail.kind}@{rail.plane}" for rail in request.rails)
