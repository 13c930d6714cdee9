# SPDX-License-Identifier: Apache-2.0
"""`python -m railweave.experiments.bench_ina --lanes 64 256`: ns of CPU per chunk of an in-network endpoint.

Transmit is finding the next chunk, quantising it and building its packet, the search for exponents included;
receive is judging a result and writing it as values. The rate is what one core could carry each way if it did
nothing else.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from railweave import outputs
from railweave._native import ina
from railweave.experiments import statistics

CASES = (("float32", "sum"), ("float32", "avg"), ("float32", "max"), ("int32", "sum"), ("int32", "avg"))


def measure(dtype: str, op: str, lanes: int, args: argparse.Namespace) -> dict[str, float | str | int]:
    """Medians over the repetitions of one case."""
    rounds = [
        ina.measure_endpoint(dtype, op, lanes, args.slots, args.elements, args.rounds)
        for _ in range(args.repeat)
    ]
    transmit = statistics.median([r["transmit_ns"] / r["chunks"] for r in rounds])
    receive = statistics.median([r["receive_ns"] / r["chunks"] for r in rounds])
    gbps = 32 * lanes / (transmit + receive)
    return {
        "dtype": dtype,
        "op": op,
        "lanes": lanes,
        "transmit_ns": round(transmit, 1),
        "receive_ns": round(receive, 1),
        "core_gbps": round(gbps, 1),
    }


def main() -> int:
    """Print a table; `--json` writes it for machines."""
    parser = argparse.ArgumentParser(prog="python -m railweave.experiments.bench_ina")
    parser.add_argument("--lanes", type=int, nargs="+", default=[256, 64])
    parser.add_argument("--slots", type=int, default=512)
    parser.add_argument("--elements", type=int, default=1 << 20)
    parser.add_argument("--rounds", type=int, default=10, help="calls per repetition")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    try:
        outputs.check_new_file("--json", args.json)
    except outputs.OutputError as error:
        parser.error(str(error))
    rows = [measure(dtype, op, lanes, args) for lanes in args.lanes for dtype, op in CASES]
    print(f"{'lanes':>6} {'dtype':>8} {'op':>4} {'transmit ns':>12} {'receive ns':>11} {'Gbit/s':>7}")
    for row in rows:
        print(
            f"{row['lanes']:>6} {row['dtype']:>8} {row['op']:>4} "
            f"{row['transmit_ns']:>12} {row['receive_ns']:>11} {row['core_gbps']:>7}"
        )
    if args.json:
        outputs.write_new_file("--json", args.json, json.dumps(rows, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
