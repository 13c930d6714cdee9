# SPDX-License-Identifier: Apache-2.0
"""The interface for in-network algorithms. docs/howto/algorithm.md builds one step by step."""

from __future__ import annotations

from railweave.controller.state import Entry, Multicast, SwitchState
from railweave.controller.tables import ip_number, mac_number
from railweave.sdk.chunks import ChunkEndpoint
from railweave.sdk.errors import AlgorithmError
from railweave.sdk.library import Algorithm, find, names
from railweave.sdk.machines import Array, Endpoint, Job, Server
from railweave.sdk.states import bridge, cells_of, entry, one_switch, star, union
from railweave.topologies.model import Nic, Plane

__all__ = [
    "Algorithm",
    "AlgorithmError",
    "Array",
    "ChunkEndpoint",
    "Endpoint",
    "Entry",
    "Job",
    "Multicast",
    "Nic",
    "Plane",
    "Server",
    "SwitchState",
    "bridge",
    "cells_of",
    "entry",
    "find",
    "ip_number",
    "mac_number",
    "names",
    "one_switch",
    "star",
    "union",
]
