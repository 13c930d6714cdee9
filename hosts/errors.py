# SPDX-License-Identifier: Apache-2.0
"""What can go wrong in a collective; each message says what was given, what was expected and what to do."""

from __future__ import annotations

from railweave.errors import UserError


class RailweaveError(UserError):
    """Base of all errors that railweave raises on purpose."""


class InvalidOption(RailweaveError, ValueError):
    """An option, alone or beside what the other ranks say, makes no sense."""


class UnsupportedDType(RailweaveError, TypeError):
    """No rail in use can reduce this data type with this operation."""


class CollectiveMismatch(RailweaveError):
    """The ranks have called different collectives; the message has both descriptions."""


class PeerLost(RailweaveError):
    """A rank of the job is gone."""

    def __init__(self, rank: int, reason: str) -> None:
        """Name the rank, and how that is known."""
        super().__init__(
            f"rank {rank} is lost: {reason}",
            "an answer from every rank",
            f"read the output of rank {rank}, then start the job again",
        )
        self.rank = rank
        self.reason = reason


class RailDown(RailweaveError):
    """A rail has failed and no other can carry its share."""

    def __init__(self, rail: str, reason: str = "") -> None:
        """Name the rail, and how that is known."""
        super().__init__(
            f"rail {rail!r} is down" + (f": {reason}" if reason else ""),
            "one working rail at least",
            "repair its link, or give the job a second rail",
        )
        self.rail = rail
        self.reason = reason


class GroupRefused(RailweaveError):
    """The controller does not form this group."""


class JoinTimeout(RailweaveError, TimeoutError):
    """Not all ranks have joined in time; the message names the missing ones."""


class ControllerUnreachable(RailweaveError, ConnectionError):
    """Nobody answers at the controller's address."""
