# SPDX-License-Identifier: Apache-2.0
"""`python -m railweave.experiments.bench_engine --lanes 64 256 --workers 2`: ns per packet, engine alone.

Every worker contributes to every slot of a group, so of n packets n - 1 are absorbed and one becomes a result
that is multicast to all workers. `--program` takes any other compilation of the same program.
"""

from __future__ import annotations

import argparse
import json
import statistics
import struct
import sys
from pathlib import Path

from railweave.p4src.artifacts import artifact
from railweave.switch.pipeline import Pipeline, Replica, exact

SWITCH_MAC, SWITCH_IP = 0x02_00_00_01_FF_01, 0x0A01FF01
GROUP, MULTICAST_GROUP, SLOTS = 1, 2, 512
UDP_PORT = 5257


def worker_mac(worker: int) -> int:
    """MAC of a worker, from 0."""
    return 0x02_00_00_01_00_01 + worker


def worker_ip(worker: int) -> int:
    """IPv4 address of a worker."""
    return 0x0A010001 + worker


def configure(pipeline: Pipeline, workers: int) -> None:
    """One group of `workers` children on the ports 1…n, this switch its root."""
    pipeline.insert("virtual_addresses", [exact(SWITCH_IP)], "owned", [SWITCH_MAC])
    pipeline.multicast(MULTICAST_GROUP, [Replica(w + 1, w + 1) for w in range(workers)])
    for worker in range(workers):
        key = [exact(GROUP), exact(worker + 1), exact(worker), exact(worker_ip(worker))]
        everyone = (1 << workers) - 1
        params = [1 << worker, everyone, 0, 2 * SLOTS - 1, 1, 1, MULTICAST_GROUP]
        pipeline.insert("members", key, "contributor", params)
        params = [worker, SWITCH_MAC, worker_mac(worker), SWITCH_IP, worker_ip(worker), 40000 + worker]
        pipeline.insert("replicas", [exact(GROUP), exact(worker + 1)], "to_child", params)


def contribution(worker: int, slot: int, round_: int, lanes: int) -> bytes:
    """A CONTRIBUTE packet."""
    body = struct.pack(">BBHBBHII", 0x10, 0, GROUP, worker, 0, slot, round_, 0xCAFE)
    body += struct.pack(f">{lanes}i", *(slot + lane for lane in range(lanes)))
    udp = struct.pack(">HHHH", 40000 + worker, UDP_PORT, 8 + len(body), 0)
    header = struct.pack(
        ">BBHHHBBHII", 0x45, 0, 28 + len(body), 0, 0, 64, 17, 0, worker_ip(worker), SWITCH_IP
    )
    total: int = sum(struct.unpack(">10H", header))
    total = (total & 0xFFFF) + (total >> 16)
    checksum = 0xFFFF ^ ((total & 0xFFFF) + (total >> 16))
    header = header[:10] + checksum.to_bytes(2, "big") + header[12:]
    ethernet = SWITCH_MAC.to_bytes(6, "big") + worker_mac(worker).to_bytes(6, "big") + b"\x08\x00"
    return ethernet + header + udp + body


def measure(program: bytes, lanes: int, workers: int, rounds: int) -> dict[str, float | int]:
    """Median ns per packet over `rounds` uses of all slots; the results are counted and checked."""
    pipeline = Pipeline.load(program)
    configure(pipeline, workers)
    taken = []
    for round_ in range(rounds):
        packets = [
            (worker + 1, contribution(worker, slot, round_, lanes))
            for slot in range(2 * SLOTS)
            for worker in range(workers)
        ]
        nanoseconds, emitted = pipeline.native.benchmark(packets, 1)
        if emitted != 2 * SLOTS * workers:
            raise SystemExit(f"{emitted} packets left the switch instead of {2 * SLOTS * workers}")
        taken.append(nanoseconds / len(packets))
    return {
        "lanes": lanes,
        "workers": workers,
        "engine_ns_per_packet": round(statistics.median(taken), 1),
        "engine_ns_best": round(min(taken), 1),
        "pps": round(1e9 / statistics.median(taken)),
    }


def main() -> None:
    """Print one row per number of lanes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--lanes", type=int, nargs="+", default=[64, 256])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--program", type=Path, help="BMv2 JSON instead of the packaged one (one --lanes)")
    parser.add_argument("--json", type=Path, help="also write the rows here")
    options = parser.parse_args()
    rows = []
    for lanes in options.lanes:
        program: bytes = (options.program or artifact(lanes).json_path).read_bytes()
        rows.append(measure(program, lanes, options.workers, options.rounds))
        sys.stdout.write("  ".join(f"{key} {value}" for key, value in rows[-1].items()) + "\n")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
