# SPDX-License-Identifier: Apache-2.0
"""Hostile input for a switch process: `python -m hostile packets|messages` in tests/, as root.

`packets` sends malformed, truncated, oversized and random frames at line rate into all ports.
`messages` sends random P4Runtime messages and faulty pipeline configurations.

The switch must survive, answer an honest controller at the end, and not grow. Its memory is measured after a
tenth of the time and at the end. For `messages`, a measurement is the least memory during a round of calls.
The switch must never take more than PEAK_KIB. It must refuse requests beyond each of its limits.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import grpc
from dataplane.control import DEADLINE_S, GrpcControl
from dataplane.harness import Switch
from dataplane.programs import aggregation, sentinel
from finsy import P4Schema
from hostile import victim
from hostile.greedy import Greedy
from hostile.messages import HIGHEST, Caller, Chaos
from hostile.packets import flood, malformed

PEAK_KIB = 512 << 10  # 120 MiB for a switch with a program, the rest for requests within its limits
CALLS = 100  # of each half of a round: with a primary controller, then without
GROWTH_KIB = 20_000  # for allocators and caches after the first tenth of the time


@dataclass(frozen=True)
class Report:
    """The number of frames or calls, the answers, and the memory of the switch in KiB."""

    kind: str
    seed: int
    seconds: float
    sent: int
    answers: dict[str, int]
    memory_before_kib: int
    memory_after_kib: int
    memory_peak_kib: int

    @property
    def ok(self) -> bool:
        """Whether the memory of the switch stayed within its bounds."""
        grown = self.memory_after_kib - self.memory_before_kib
        return grown <= GROWTH_KIB and self.memory_peak_kib <= PEAK_KIB


def packets(seed: int, seconds: float) -> Report:
    """Flood every port and report the memory of the switch."""
    program = aggregation(64)
    rng = random.Random(seed)
    honest = [sentinel(port, rng.randbytes(rng.randrange(64))) for port in (1, 2, 3, 4)]
    honest += [frame_of_aggregation(rng) for _ in range(20)]
    frames = malformed(rng, honest, 5000)
    with victim.running() as switch:
        honest_control = GrpcControl(switch.address, victim.DEVICE)
        Switch("victim", honest_control).load(program)  # the program trusts all ports
        sockets = list(switch.sockets.values())
        sent = flood(sockets, frames, seconds / 10)
        before = switch.memory_kib()
        sent += flood(sockets, frames, seconds * 9 / 10)
        switch.check_alive()
        after, peak = switch.memory_kib(), switch.peak_kib()
        honest_control.load(program.schema)
        honest_control.close()
    return Report("packets", seed, seconds, sent, {}, before, after, peak)


def frame_of_aggregation(rng: random.Random) -> bytes:
    """Return a contribution that is nearly valid."""
    addresses = bytes.fromhex("02000001ffff") + rng.randbytes(6)
    ip = bytes.fromhex("4500013400004000401100000a0100010a01fffe")
    return addresses + b"\x08\x00" + ip + rng.randbytes(8 + 16 + 256)


def messages(seed: int, seconds: float) -> Report:
    """Exceed the limits, then send random messages, with and without a primary controller."""
    program = aggregation(64)
    schema = program.schema
    rng = random.Random(seed)
    answers: Counter[str] = Counter()
    with victim.running() as switch, grpc.insecure_channel(switch.address) as channel:
        with _primary(switch.address, schema):
            Greedy(switch.address, victim.DEVICE, schema.p4info).ask_everything()
        caller = Caller(channel)
        chaos = Chaos(rng, schema.p4info, program.json.read_bytes(), victim.DEVICE)

        def talk() -> int:
            """Make calls. Return the least memory between them, as a second saved program takes 15 MiB."""
            least = switch.memory_kib()
            for _ in range(CALLS):
                stream = rng.random() < 0.2
                code = caller.stream(chaos.stream()) if stream else caller.unary(*chaos.unary())
                answers[code.name] += 1
                least = min(least, switch.memory_kib())
            return least

        start, before, after = time.monotonic(), 0, 0
        while not after or time.monotonic() < start + seconds:
            with _primary(switch.address, schema):
                after = talk()
            after = min(after, talk())
            if not before and time.monotonic() > start + seconds / 10:
                before, after = after, 0
        switch.check_alive()
        peak = switch.peak_kib()
        with _primary(switch.address, schema):
            pass
    return Report("messages", seed, seconds, answers.total(), dict(answers), before, after, peak)


@contextlib.contextmanager
def _primary(address: str, schema: P4Schema) -> Iterator[None]:
    """Run an honest controller. Random messages can repeat its election id but not exceed it."""
    control = _elected(address)
    try:
        control.load(schema)
        yield
    finally:
        control.close()


def _elected(address: str) -> GrpcControl:
    """Return the primary, after the previous primary with the same election id has left."""
    end = time.monotonic() + DEADLINE_S
    while True:
        try:
            return GrpcControl(address, victim.DEVICE, HIGHEST)
        except grpc.RpcError:
            if time.monotonic() > end:
                raise


def main(arguments: list[str]) -> int:
    """Return 1 if the switch took too much memory. Other failures raise exceptions."""
    parser = argparse.ArgumentParser(prog="python -m hostile", description=__doc__)
    parser.add_argument("kind", choices=("packets", "messages"))
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="write the report there")
    options = parser.parse_args(arguments)
    report = {"packets": packets, "messages": messages}[options.kind](options.seed, options.seconds)
    print(json.dumps(asdict(report)))
    if options.json:
        options.json.write_text(json.dumps(asdict(report)) + "\n")
    return int(not report.ok)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
