# SPDX-License-Identifier: Apache-2.0
"""Count the links that the shards of an allgather cross, in a ring and by multicast. Nothing is run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from railweave.experiments import traffic


def measure(options: dict[str, Any], out: Path, on_phase: Callable[[str], None]) -> list[dict[str, Any]]:
    """Return the counts by network and number of hosts, and their distance from 2(P-1)/P on one switch."""
    counts = {
        name: {
            str(hosts): [traffic.ring(hosts, levels), traffic.multicast(hosts, levels)]
            for hosts in options["hosts"]
        }
        for name, levels in options["networks"].items()
    }
    off = [
        abs(ring * hosts / multicast / (2 * hosts - 2) - 1)
        for hosts, (ring, multicast) in ((int(p), pair) for p, pair in counts["one switch"].items())
    ]
    return [{"counts": counts, "off": max(off)}]
