# SPDX-License-Identifier: Apache-2.0
"""The entries of the switches, computed from the plane and the jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from railweave import sdk


def wanted(plane: sdk.Plane, jobs: Sequence[sdk.Job]) -> Mapping[str, sdk.SwitchState]:
    """Return the state of the plane's only switch: its forwarding, and the members of each job."""
    return sdk.one_switch(plane, jobs)
