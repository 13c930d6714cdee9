# SPDX-License-Identifier: Apache-2.0
"""Time against loss: exact int32 sums over many chunks, on links that lose, duplicate and reorder.

    cd tests && python -m protocol.loss_curve --chunks 100000 --json loss.json

Endpoints are the native ones, switches the compiled P4 program; time is virtual: a run repeats bit for bit.
Every link has the rate of `--rate-mbps` and loses in each direction; the trunks of a tree, too.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from protocol.network import build
from protocol.virtual_time import MICROSECOND, MILLISECOND, SECOND, Link

SHAPES: dict[str, int | tuple[int, ...]] = {"one switch": 8, "two racks": (4, 4)}
LOSSES = (0.0, 0.001, 0.01, 0.05)
LANES = 64  # of the compiled program; the time of a packet on a link is that of --lanes
OVERHEAD = 8 + 12 + 14 + 20 + 8 + 16 + 4  # preamble, gap, Ethernet, IPv4, UDP, our header, FCS


@dataclass(frozen=True)
class Point:
    """One run. Times are virtual; `utilisation` is of the time that the chunks alone take on a link."""

    topology: str
    hosts: int
    loss: float
    duplicate: float
    reorder: float
    chunks: int
    time_s: float
    utilisation: float
    wrong: int
    retransmissions: int
    spurious: int
    timeouts: int
    duplicates: int
    probes: int
    stalls: int


def measure(
    topology: str, loss: float, *, chunks: int, slots: int, packet_time: int, seed: int, impaired: bool = True
) -> Point:
    """One exact sum over `chunks` chunks; every host's every element is compared."""
    link = Link(
        delay=50 * MICROSECOND,
        loss=loss,
        duplicate=0.01 if impaired else 0.0,
        reorder=0.01 if impaired else 0.0,
        late=MILLISECOND,
        packet_time=packet_time,
    )
    network = build(
        SHAPES[topology],
        slots=slots,
        lanes=LANES,
        link=link,
        seed=seed,
        engine=True,
        packet_time=packet_time,
    )
    hosts = len(network.endpoints)
    generator = np.random.default_rng(seed)
    inputs = [generator.integers(-(2**31), 2**31, chunks * LANES, np.int32) for _ in range(hosts)]
    wanted = np.sum(inputs, axis=0, dtype=np.int32)
    for index, values in enumerate(inputs):
        network.endpoints[index].start(0, "sum", values, values)
        network.ranks[index].pump()
    network.run(lambda: all(0 in events for events in network.events), within=10_000 * SECOND)
    stats = [endpoint.stats() for endpoint in network.endpoints]

    def total(name: str) -> int:
        return int(sum(each[name] for each in stats))

    return Point(
        topology=topology,
        hosts=hosts,
        loss=loss,
        duplicate=link.duplicate,
        reorder=link.reorder,
        chunks=chunks,
        time_s=network.now / SECOND,
        utilisation=chunks * packet_time / network.now,
        wrong=sum(int((values != wanted).sum()) for values in inputs),
        retransmissions=total("retransmissions"),
        spurious=total("spurious"),
        timeouts=total("timeouts"),
        duplicates=total("duplicates"),
        probes=total("probes_sent"),
        stalls=total("stalls"),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the curve; the exit status is 1 if any number was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--chunks", type=int, default=100_000, help="chunks of every sum")
    parser.add_argument("--slots", type=int, default=512, help="of the group")
    parser.add_argument("--lanes", type=int, default=256, help="that a packet's time on the link stands for")
    parser.add_argument("--rate-mbps", type=float, default=100, help="of every link")
    parser.add_argument("--loss", type=float, nargs="+", default=LOSSES, help="probabilities, per direction")
    parser.add_argument("--topology", choices=SHAPES, nargs="+", default=list(SHAPES))
    parser.add_argument("--clean", action="store_true", help="no duplication and no reordering")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="write the points to this file")
    options = parser.parse_args(arguments)
    packet_time = int((OVERHEAD + 4 * options.lanes) * 8 * SECOND / (options.rate_mbps * 1e6))
    points = []
    print(f"{'topology':<12} {'loss':>6} {'time s':>8} {'use':>6} {'again':>7} {'needless':>8} wrong")
    for topology in options.topology:
        for loss in options.loss:
            begin = time.perf_counter()
            point = measure(
                topology,
                loss,
                chunks=options.chunks,
                slots=options.slots,
                packet_time=packet_time,
                seed=options.seed,
                impaired=not options.clean,
            )
            points.append(point)
            print(
                f"{topology:<12} {loss:>6.1%} {point.time_s:>8.2f} {point.utilisation:>6.1%} "
                f"{point.retransmissions:>7} {point.spurious:>8} {point.wrong:>5}"
                f"   ({time.perf_counter() - begin:.0f} s)",
                flush=True,
            )
    if options.json:
        record = {
            "options": vars(options) | {"json": str(options.json)},
            "points": [asdict(p) for p in points],
        }
        options.json.write_text(json.dumps(record, indent=1))
    return int(any(point.wrong for point in points))


if __name__ == "__main__":
    raise SystemExit(main())
