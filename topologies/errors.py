# SPDX-License-Identifier: Apache-2.0
"""What can be wrong with a topology, or with the machine that should become one."""

from __future__ import annotations


class TopologyError(ValueError):
    """A topology that makes no sense; the message says what was given and what was expected."""


class LabError(RuntimeError):
    """The lab cannot be built or has broken; the message names the part and what to do."""
