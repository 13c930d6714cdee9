# SPDX-License-Identifier: Apache-2.0
"""Errors of topologies and of labs."""

from __future__ import annotations

from railweave.errors import UserError


class TopologyError(UserError, ValueError):
    """An invalid topology; the message names what was given and what was expected."""


class LabError(UserError, RuntimeError):
    """The lab cannot be built or has broken; the message names the part and what to do."""


class WorkerFailed(LabError):
    """A worker has ended otherwise than with status 0; `code` is its exit status, negative for a signal."""

    def __init__(self, code: int, given: str, expected: str = "", do: str = "") -> None:
        """Join the parts, and keep the status."""
        super().__init__(given, expected, do)
        self.code = code
