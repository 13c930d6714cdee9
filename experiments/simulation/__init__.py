# SPDX-License-Identifier: Apache-2.0
"""Allreduce among more hosts than the lab can hold, packet by packet, on the links and protocols of ns-3.

ns-3's are links, queues, IP and TCP; ours is what hosts and aggregating switches do (model.hpp). No element
is added: a result is a time. A process of its own keeps ns-3 and its compiler away from the caller's.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from importlib.util import find_spec

from railweave.errors import explain
from railweave.experiments.errors import OptionError

MOST_HOSTS = 1024
MOST_PER_RACK = 250  # addresses of a /24, less those of its switches
ALGORITHMS = ("ring", "hierarchical", "tree", "composed")


@dataclass(frozen=True)
class Fabric:
    """Racks of equally many hosts below one spine, all links alike."""

    racks: int
    hosts: int  # per rack
    rate_bps: float = 10e9
    delay_s: float = 1e-6  # of a link
    message_s: float = 5e-6  # that a host takes from a message of a ring to the next one
    mtu: int = 9000
    chunk_bytes: int = 8192  # that a switch adds at once
    burst_bytes: int = (
        0  # of ports that are token buckets, as in the lab; 0: packets leave at the link's rate
    )

    def check(self) -> None:
        """Raise OptionError for what cannot be simulated."""
        if self.racks < 1 or not 2 <= self.hosts <= MOST_PER_RACK or self.racks * self.hosts > MOST_HOSTS:
            raise OptionError(
                f"{self.racks} racks of {self.hosts} hosts",
                f"racks of 2 to {MOST_PER_RACK}, and up to {MOST_HOSTS} hosts",
                "correct the numbers",
            )
        if self.chunk_bytes + 44 > self.mtu:  # IP, UDP and our header
            raise OptionError(
                f"chunks of {self.chunk_bytes} bytes", f"at most {self.mtu - 44}", "take smaller chunks"
            )


@dataclass(frozen=True)
class Call:
    """An allreduce on one plane."""

    algorithm: str  # of ALGORITHMS; composed: a ring of racks and single ranks
    fabric: Fabric
    size_bytes: int
    ina: int = 0  # composed: how many racks have a switch that aggregates, the first ones
    message_bytes: int = 32 << 10  # composed: of the largest segments, per member of the ring
    parts: int = 1  # ring: of the tensor, that go round at once

    def check(self) -> None:
        """Raise OptionError for what cannot be simulated."""
        self.fabric.check()
        if self.algorithm not in ALGORITHMS:
            raise OptionError(
                f"algorithm {self.algorithm!r}", f"one of {', '.join(ALGORITHMS)}", "correct the name"
            )
        for name, least in (("size_bytes", 1), ("message_bytes", 8), ("parts", 1)):
            if getattr(self, name) < least:
                raise OptionError(f"{name} {getattr(self, name)}", f"at least {least}", f"correct {name}")
        if not 1 <= self.ina <= self.fabric.racks and self.algorithm == "composed":
            raise OptionError(
                f"{self.ina} racks that aggregate", f"1 to {self.fabric.racks}", "correct the number"
            )


@dataclass(frozen=True)
class Simulated:
    """What a simulation gave: simulated seconds until all hosts had their results, and what it took."""

    seconds: float
    events: int
    wall_s: float


def obstacle() -> str:
    """Return what keeps this machine from simulating; empty if nothing does."""
    return "" if find_spec("ns3") else explain("no ns-3", "the package ns3", "install it: make simulate")


Simulate = Callable[..., Awaitable[Simulated]]
"""Simulates the calls that are its arguments, on planes of their own and all at once."""


@asynccontextmanager
async def simulator() -> AsyncIterator[Simulate]:
    """Start ns-3, which takes seconds, for any number of simulations; OptionError says what cannot be."""
    if found := obstacle():
        raise OptionError(found)
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", __name__),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert child.stdin and child.stdout and child.stderr  # noqa: S101, PT018 - pipes
    to, back, errors = child.stdin, child.stdout, child.stderr

    async def simulate(*calls: Call) -> Simulated:
        for call in calls:
            call.check()
        to.write(json.dumps([asdict(call) for call in calls]).encode() + b"\n")
        if said := await back.readline():
            return Simulated(**json.loads(said))
        lines = (await errors.read()).decode(errors="replace").strip().splitlines()
        raise OptionError(
            f"the simulation has failed: {lines[-1] if lines else 'no output'}",
            "a result",
            "check ns-3: make simulate",
        )

    try:
        yield simulate
    finally:
        if child.returncode is None:
            child.kill()
        await child.wait()
