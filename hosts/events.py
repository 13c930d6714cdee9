# SPDX-License-Identifier: Apache-2.0
"""Messages between a rank and the controller, as plain values without gRPC."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class RailOffer:
    """One rail as this rank offers it; the fields are those of the message RailOffer."""

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
    device: bool = False  # of an rdma rail: queue_pairs are a device's, which keep their numbers


@dataclass(frozen=True)
class InaGroup:
    """An ina rail's place in one of its aggregation trees; the fields are those of the message InaGroup."""

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
    """The ring of an ina rail that no tree of all ranks carries: racks that have a tree, and single ranks."""

    rail: str
    lanes: int
    members: tuple[tuple[int, ...], ...]  # in the order of the ring, their ranks in the order of the rack
    reasons: tuple[str, ...]  # by member: why no switch adds it; empty if one does


@dataclass(frozen=True)
class Sums:
    """How a switch adds up a netreduce rail's connections; the fields are those of the message Sums."""

    rail: str
    window_packets: int  # 0: it does not
    reason: str = ""  # why it does not


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
    """A rank is gone without a word; the group has ended."""

    rank: int
    reason: str


@dataclass(frozen=True)
class MemberLeft:
    """A rank has left in good order and takes part in no further collective."""

    rank: int


@dataclass(frozen=True)
class PlaneDown:
    """No tree joins the ranks on a plane now; its groups are paused, and may be moved when it is back."""

    plane: str
    reason: str


@dataclass(frozen=True)
class PlaneUp:
    """A plane can be used again; its groups have been moved."""

    plane: str


@dataclass(frozen=True)
class GroupPaused:
    """Sums in flight in a group may be lost.

    Nothing more is to be sent to it, nothing that still comes from it is to be believed, and
    `Membership.report_position` is to be called, also when this comes again.
    """

    rail: str
    tree: int
    group: int
    reason: str


@dataclass(frozen=True)
class GroupMoved:
    """A paused group goes on as `place`, from chunk `resume_from`, which has round 0 there.

    `group` is the old number. Chunks count from the forming of the tree, across all its moves.
    """

    group: int
    place: InaGroup
    resume_from: int


@dataclass(frozen=True)
class LeaseLost:
    """The controller does not know this group any more: nobody watches it, its ina rails are gone."""

    reason: str


Event = MemberLost | MemberLeft | PlaneDown | PlaneUp | GroupPaused | GroupMoved | LeaseLost
