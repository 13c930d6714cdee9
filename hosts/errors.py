# SPDX-License-Identifier: Apache-2.0
"""Errors of collectives. Each message names the given value, the expected one and the remedy."""

from __future__ import annotations

from railweave.errors import LACKING, USAGE, UserError


class RailweaveError(UserError):
    """The base class of all errors that collectives raise."""


class InvalidOption(RailweaveError, ValueError):
    """An option or argument is invalid, or does not match those of the other ranks."""

    status = USAGE


class UnsupportedDType(RailweaveError, TypeError):
    """No rail in use can reduce this data type with this operation.

    The message names the rails and what they can reduce. Add a `tcp` or `rdma` rail.
    """

    status = USAGE


class CollectiveMismatch(RailweaveError):
    """The ranks have called different collectives, sizes, types, operations or roots.

    All ranks raise this error, and its message describes both calls.
    """


class PeerLost(RailweaveError):
    """A rank of the job is gone: its process has ended, or no longer answers.

    Attributes:
        rank: The lost rank.
        reason: The evidence for the loss.
    """

    def __init__(self, rank: int, reason: str) -> None:
        """Name the lost rank and the evidence."""
        super().__init__(
            f"rank {rank} is lost: {reason}",
            "an answer from every rank",
            f"read the output of rank {rank}, then start the job again",
        )
        self.rank = rank
        self.reason = reason


class RailDown(RailweaveError):
    """A rail has failed, and its share has no rail left to carry it.

    Attributes:
        rail: Name of the failed rail.
        reason: The cause, if it is known.
    """

    def __init__(self, rail: str, reason: str = "") -> None:
        """Name the failed rail and the cause."""
        super().__init__(
            f"rail {rail!r} is down" + (f": {reason}" if reason else ""),
            "one working rail at least",
            "repair its link, or give the job a second rail",
        )
        self.rail = rail
        self.reason = reason


class GroupRefused(RailweaveError):
    """The controller refuses the job, or all of its rails; the message says why."""


class JoinTimeout(RailweaveError, TimeoutError):
    """Not all ranks have joined within `timeout_s`; the message names the missing ranks."""


class ControllerUnreachable(RailweaveError, ConnectionError):
    """No controller answers at the given address."""

    status = LACKING
