# SPDX-License-Identifier: Apache-2.0
"""Messages between a rank and the controller, as plain values without gRPC."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class RailOffer:
    """One rail that this rank offers. The fields are those of the message RailOffer."""

    name: str
    kind: str
    plane: str
    address: str
    mac: str = ""
    port: int = 0
    queue_pairs: Sequence[int] = ()
    rate_bps: int = 0
    control_port: int = 0  # 0: a rank without recovery
    sum_queue_pairs: Sequence[int] = ()  # of a netreduce rail: out, into, alias
    device: bool = False  # of an rdma rail: an RDMA device has the queue pairs, and their numbers are fixed


@dataclass(frozen=True)
class InaGroup:
    """A rank's place in one aggregation tree of an ina rail. The fields are those of the message InaGroup."""

    rail: str
    group: int
    virtual_address: str
    udp_port: int
    child: int
    slots: int
    lanes: int
    depth: int
    tree: int = 0


@dataclass(frozen=True)
class Ring:
    """The ring of an ina rail that has no tree of all ranks. It joins racks with a tree and single ranks."""

    rail: str
    lanes: int
    members: tuple[tuple[int, ...], ...]  # in the order of the ring, their ranks in the order of the rack
    reasons: tuple[str, ...]  # by member: why no switch adds its data; empty if a switch does


@dataclass(frozen=True)
class Sums:
    """How a switch sums a netreduce rail's connections. The fields are those of the message Sums."""

    rail: str
    window_packets: int  # 0: the switch computes no sums
    reason: str = ""  # why the switch computes no sums


@dataclass(frozen=True)
class AlgorithmJob:
    """The job of an algorithm that carries a rail. The fields are those of the message AlgorithmJob."""

    rail: str
    algorithm: str  # its name, or the path of its folder
    number: int  # among the algorithm's jobs on the plane's switches
    lanes: int  # numbers per packet


@dataclass(frozen=True)
class Decision:
    """Describe why a rail carries a class of calls, or does not. The message Decision has the same fields.

    Attributes:
        rail: Name of the rail.
        collective: Name of the collective; empty if the entry is about all calls.
        dtype: Name of the data type.
        op: Name of the operation; empty for collectives without one.
        size_class: Largest size of these calls in bytes, a power of two; they are larger than half this size.
        used: Whether the rail carries a part of such calls.
        reason: A value of `Reason`; empty if the rail is used.
        detail: The reason in words. For a rail that is used: how it carries the calls, such as `multicast`.
        calls: Number of calls.
    """

    rail: str
    collective: str
    dtype: str
    op: str
    size_class: int
    used: bool
    reason: str = ""
    detail: str = ""
    calls: int = 0


@dataclass(frozen=True)
class MemberLost:
    """A rank has ended without leaving; the group has ended."""

    rank: int
    reason: str


@dataclass(frozen=True)
class MemberLeft:
    """A rank has called LeaveGroup and takes part in no further collective."""

    rank: int


@dataclass(frozen=True)
class PlaneDown:
    """No tree joins the ranks on a plane now. Its groups are paused, and may move when the plane is back."""

    plane: str
    reason: str


@dataclass(frozen=True)
class PlaneUp:
    """A plane can be used again; its groups have been moved."""

    plane: str


@dataclass(frozen=True)
class GroupPaused:
    """Sums in flight in a group may be lost.

    The rank must send nothing more to the group and discard everything that still comes from the group.
    It calls `Membership.report_position` for each such event, also a repeated one.
    """

    rail: str
    tree: int
    group: int
    reason: str


@dataclass(frozen=True)
class GroupMoved:
    """A paused group continues at `place`, from chunk `resume_from`, which has round 0 there.

    `group` is the old number. Chunk numbers start when the tree is formed, and continue over all its moves.
    """

    group: int
    place: InaGroup
    resume_from: int


@dataclass(frozen=True)
class LeaseLost:
    """The controller does not know this group any more: its ina rails are gone, and its ranks unwatched."""

    reason: str


Event = MemberLost | MemberLeft | PlaneDown | PlaneUp | GroupPaused | GroupMoved | LeaseLost
