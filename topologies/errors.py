# SPDX-License-Identifier: Apache-2.0
"""Errors of topologies and of labs."""

from __future__ import annotations

from railweave.errors import USAGE, Unavailable, UserError


class TopologyError(UserError, ValueError):
    """An invalid topology. The message names the given and the expected value."""

    status = USAGE


class LabError(UserError, RuntimeError):
    """The lab cannot be made, or a part has failed. The message names the part and the remedy."""


class LabUnavailable(Unavailable, LabError):
    """This machine or this user cannot make labs."""


class WorkerFailed(LabError):
    """A worker has failed.

    Attributes:
        code: Its exit status; negative: the number of the signal that killed it.
    """

    def __init__(self, code: int, given: str, expected: str = "", do: str = "") -> None:
        """Join the parts, and keep the exit status."""
        super().__init__(given, expected, do)
        self.code = code
