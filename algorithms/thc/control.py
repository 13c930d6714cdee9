# SPDX-License-Identifier: Apache-2.0
"""The entries of the switches, computed from the plane and the jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from railweave import sdk
from railweave.algorithms.thc.grid import levels


def wanted(plane: sdk.Plane, jobs: Sequence[sdk.Job]) -> Mapping[str, sdk.SwitchState]:
    """Return the state of the plane's only switch: forwarding, members, and the lookup table of each job."""
    [(switch, state)] = sdk.one_switch(plane, jobs).items()
    tables = frozenset(_table(job) for job in jobs)
    return {switch: sdk.union(state, sdk.SwitchState(tables))}


def crossings(plane: sdk.Plane) -> float:
    """Return the share of the tensor that crosses a link: results have 8 bits for a float32."""
    return 8 / 32


def _table(job: sdk.Job) -> sdk.Entry:
    packed = int.from_bytes(bytes(levels(job.ranks).tolist()), "little")
    words = {"low": packed % 2**64, "high": packed >> 64}
    return sdk.entry("levels", {"udp_port": job.udp_port}, "level", words)
