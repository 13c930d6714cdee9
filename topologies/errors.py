# SPDX-License-Identifier: Apache-2.0
"""Errors of topologies and of labs."""

from __future__ import annotations


class TopologyError(ValueError):
    """An invalid topology; the message names what was given and what was expected."""


class LabError(RuntimeError):
    """The lab cannot be made, or a part has failed; the message names the part and the remedy."""


class WorkerFailed(LabError):
    """A worker has failed.

    Attributes:
        code: Its exit status; negative: the number of the signal that killed it.
    """

    def __init__(self, message: str, code: int) -> None:
        """Keep message and exit status."""
        super().__init__(message)
        self.code = code
