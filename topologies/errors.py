# SPDX-License-Identifier: Apache-2.0
"""Errors of topologies and of labs."""

from __future__ import annotations


class TopologyError(ValueError):
    """An invalid topology; the message names what was given and what was expected."""


class LabError(RuntimeError):
    """The lab cannot be built or has broken; the message names the part and what to do."""
