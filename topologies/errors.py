# SPDX-License-Identifier: Apache-2.0
"""Errors of topologies and of labs."""

from __future__ import annotations


class TopologyError(ValueError):
    """An invalid topology; the message names what was given and what was expected."""


class LabError(RuntimeError):
    """The lab cannot be built or has broken; the message names the part and what to do."""


class WorkerFailed(LabError):
    """A worker has ended otherwise than with status 0; `code` is its exit status, negative for a signal."""

    def __init__(self, message: str, code: int) -> None:
        """Keep both."""
        super().__init__(message)
        self.code = code
