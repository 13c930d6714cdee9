# SPDX-License-Identifier: Apache-2.0
"""Runs random programs on the embedded engine and on the real BMv2: `python -m differential` in tests/.

One seed, which is printed, determines a program, its entries and its packets. A program ends at its first
difference. `--folder` keeps the programs.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
from pathlib import Path

from differential.compare import folder, run
from differential.generate import generate
from vectors import bmv2


def main(arguments: list[str]) -> int:
    """Run the programs. Return 1 if a difference was found."""
    parser = argparse.ArgumentParser(prog="python -m differential", description=__doc__)
    parser.add_argument("--programs", type=int, default=20, help="how many that both switches run")
    parser.add_argument("--packets", type=int, default=1000, help="into each program")
    parser.add_argument("--seed", type=int, default=1, help="of the first program; the others follow")
    parser.add_argument("--without", nargs="*", default=[], help="features to leave out")
    parser.add_argument("--folder", type=Path, help="where programs are left")
    options = parser.parse_args(arguments)
    if missing := bmv2.missing():
        raise SystemExit(missing)
    ran = packets = frames = refused = differences = 0
    with tempfile.TemporaryDirectory() as temporary:
        for seed in itertools.count(options.seed):
            program = generate(seed, frozenset(options.without))
            outcome = run(program, options.packets, folder(options.folder or Path(temporary), seed))
            print(f"seed {seed}: {outcome}", flush=True)
            if outcome.difference:
                print(f"  {outcome.difference}", flush=True)
            refused += outcome.refused is not None
            packets, frames = packets + outcome.packets, frames + outcome.frames
            differences += outcome.difference is not None
            ran += outcome.refused is None and outcome.invalid is None
            if ran == options.programs:
                break
    print(f"{ran} programs, {packets} packets, {frames} out, {refused} refused, {differences} differences")
    return min(differences, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
