# SPDX-License-Identifier: Apache-2.0
"""`python -m hostile packets|messages` in tests/, as root: what a switch process must survive, for a time.

packets: malformed, truncated, oversized and random frames at line rate into all ports.
messages: random P4Runtime messages, and pipeline configurations with something wrong in them.

The switch must stay, answer an honest controller at the end, and not grow: its memory is measured when a
tenth of the time has passed and at the end.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

import grpc
from dataplane.control import GrpcControl
from dataplane.programs import aggregation, sentinel
from finsy import P4Schema
from hostile import victim
from hostile.messages import Caller, Chaos
from hostile.packets import flood, malformed

GROWTH_KIB = 20_000  # what allocators and caches may take after the first tenth of the time


@dataclass(frozen=True)
class Report:
    """What was sent, and the memory of the switch in KiB."""

    kind: str
    seed: int
    seconds: float
    sent: int
    answers: dict[str, int]
    memory_before_kib: int
    memory_after_kib: int


def packets(seed: int, seconds: float) -> Report:
    """Flood every port."""
    program = aggregation(64)
    rng = random.Random(seed)
    honest = [sentinel(port, rng.randbytes(rng.randrange(64))) for port in (1, 2, 3, 4)]
    honest += [frame_of_aggregation(rng) for _ in range(20)]
    frames = malformed(rng, honest, 5000)
    with victim.running("--program", str(program.json), "--p4info", str(program.p4info)) as switch:
        sockets = list(switch.sockets.values())
        sent = flood(sockets, frames, seconds / 10)
        before = switch.memory_kib()
        sent += flood(sockets, frames, seconds * 9 / 10)
        switch.check_alive()
        after = switch.memory_kib()
        honest = GrpcControl(switch.address, victim.DEVICE)
        honest.load(P4Schema(program.p4info, program.json))
        honest.close()
    return Report("packets", seed, seconds, sent, {}, before, after)


def frame_of_aggregation(rng: random.Random) -> bytes:
    """A contribution, nearly right."""
    addresses = bytes.fromhex("02000001ffff") + rng.randbytes(6)
    ip = bytes.fromhex("4500013400004000401100000a0100010a01fffe")
    return addresses + b"\x08\x00" + ip + rng.randbytes(8 + 16 + 256)


def messages(seed: int, seconds: float) -> Report:
    """Talk nonsense as the primary controller and as others."""
    program = aggregation(64)
    schema = P4Schema(program.p4info, program.json)
    rng = random.Random(seed)
    answers: Counter[str] = Counter()
    with victim.running() as switch, grpc.insecure_channel(switch.address) as channel:
        control = GrpcControl(switch.address, victim.DEVICE)
        control.load(schema)
        caller = Caller(channel)
        chaos = Chaos(rng, schema.p4info, program.json.read_bytes(), victim.DEVICE)
        end = time.monotonic() + seconds
        tenth, before = end - seconds * 9 / 10, 0
        while (now := time.monotonic()) < end:
            code = caller.stream(chaos.stream()) if rng.random() < 0.2 else caller.unary(*chaos.unary())
            answers[code.name] += 1
            if not before and now > tenth:
                before = switch.memory_kib()
        switch.check_alive()
        after = switch.memory_kib()
        control.close()
        honest = GrpcControl(switch.address, victim.DEVICE, election_id=1 << 100)
        honest.load(schema)
        honest.close()
    return Report("messages", seed, seconds, answers.total(), dict(answers), before, after)


def main(arguments: list[str]) -> int:
    """1 if the switch grew; what else goes wrong is an exception."""
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
    return int(report.memory_after_kib - report.memory_before_kib > GROWTH_KIB)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
