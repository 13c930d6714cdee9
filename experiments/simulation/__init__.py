# SPDX-License-Identifier: Apache-2.0
"""Packet-level simulation of allreduce among more hosts than a lab can hold, with ns-3.

ns-3 models links, queues, IP and TCP. `model.hpp` models the hosts and the aggregating switches. The
simulation adds no elements: its result is a time. ns-3 and its compiler run in a separate process.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from importlib.util import find_spec

from railweave.errors import Unavailable
from railweave.experiments.errors import OptionError, ResultError

MOST_HOSTS = 1024
MOST_PER_RACK = 250  # addresses of a /24, without those of its switches
ALGORITHMS = ("ring", "hierarchical", "tree", "composed")


@dataclass(frozen=True)
class Fabric:
    """Describe a network: racks of equal size below one spine, with equal links.

    Attributes:
        racks: Number of racks.
        hosts: Number of hosts per rack, 2 to 250; at most 1,024 hosts in all.
        rate_bps: Rate of every link, in bit/s.
        delay_s: Propagation delay of a link, in seconds.
        message_s: Processing time of a host per message of a ring, in seconds.
        mtu: MTU of every link, in bytes.
        chunk_bytes: Bytes that a switch adds at once.
        burst_bytes: Burst size of ports that are token buckets, as in the lab. 0: packets leave at the link's
            rate.
    """

    racks: int
    hosts: int
    rate_bps: float = 10e9
    delay_s: float = 1e-6
    message_s: float = 5e-6
    mtu: int = 9000
    chunk_bytes: int = 8192
    burst_bytes: int = 0

    def check(self) -> None:
        """Raise OptionError if the network cannot be simulated."""
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
    """Describe an allreduce on one plane.

    Attributes:
        algorithm: `ring`, `hierarchical`, `tree`, or `composed` (a ring of racks and single ranks).
        fabric: The network.
        size_bytes: Bytes of the tensor.
        ina: For `composed`: number of racks whose switch aggregates, counted from the first rack.
        message_bytes: For `composed`: bytes per member of the ring in the largest segments.
        parts: For `ring`: number of parts of the tensor that go round at once.
    """

    algorithm: str
    fabric: Fabric
    size_bytes: int
    ina: int = 0
    message_bytes: int = 32 << 10
    parts: int = 1

    def check(self) -> None:
        """Raise OptionError if the call cannot be simulated."""
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
    """Hold the result of a simulation.

    Attributes:
        seconds: Simulated seconds until all hosts had their results.
        events: Number of simulated events.
        wall_s: Seconds that the simulation took.
    """

    seconds: float
    events: int
    wall_s: float


def require(package: str = "ns3") -> None:
    """Raise Unavailable if this machine cannot simulate."""
    if not find_spec(package):
        raise Unavailable("no ns-3", f"the package {package}", "install it: make simulate")


Simulate = Callable[..., Awaitable[Simulated]]
"""Simulates the given calls at the same time, each on a separate plane."""


@asynccontextmanager
async def simulator() -> AsyncIterator[Simulate]:
    """Start ns-3, and yield an async function `simulate(*calls)` that returns a `Simulated`.

    Calls of one `simulate` run at the same time, each on a separate plane. The start takes seconds: use one
    simulator for many simulations.

    Raises:
        Unavailable: ns-3 is not installed.
        OptionError: A call is invalid.
        ResultError: A simulation has failed.
    """
    require()
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
        raise ResultError(
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
