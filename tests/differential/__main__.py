# SPDX-License-Identifier: Apache-2.0
"""Runs random programs on the embedded engine and on the real BMv2: `python -m differential` in tests/.

One seed, which is printed, determines a program, its entries and its packets. A program ends at its first
difference. The tool makes the difference smaller and saves it in --folder as a golden case, which
`vectors.embedded` can replay.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from differential.compare import Outcome, folder, run
from differential.generate import generate
from differential.shrink import shrink
from vectors import bmv2


@dataclass
class Totals:
    """The totals of a run; `--json` writes them to a file."""

    first_seed: int
    programs: int = 0
    packets: int = 0
    frames: int = 0
    refused: int = 0
    seconds: float = 0.0
    differences: tuple[int, ...] = ()  # seeds

    def add(self, seed: int, outcome: Outcome) -> None:
        """Add the outcome of one program."""
        if outcome.invalid or outcome.refused:
            self.refused += bool(outcome.refused)
            return
        self.programs += 1
        self.packets += outcome.packets
        self.frames += outcome.frames
        if outcome.difference:
            self.differences += (seed,)


def main(arguments: list[str]) -> int:
    """Run the programs. Return 1 if a difference was found."""
    parser = argparse.ArgumentParser(prog="python -m differential", description=__doc__)
    parser.add_argument("--programs", type=int, default=20, help="how many that both switches run")
    parser.add_argument("--packets", type=int, default=1000, help="into each program")
    parser.add_argument("--seed", type=int, default=1, help="of the first program; the others follow")
    parser.add_argument("--without", nargs="*", default=[], help="features to leave out")
    parser.add_argument("--folder", type=Path, help="where programs and differences are left")
    parser.add_argument("--no-shrink", action="store_true", help="leave differences as they were found")
    parser.add_argument("--json", type=Path, help="write the totals there")
    options = parser.parse_args(arguments)
    if missing := bmv2.missing():
        raise SystemExit(missing)
    with tempfile.TemporaryDirectory() as temporary:
        totals = _run(options, options.folder or Path(temporary))
    print(
        f"{totals.programs} programs, {totals.packets} packets, {totals.frames} out, "
        f"{totals.refused} refused, {len(totals.differences)} differences"
    )
    if options.json:
        options.json.write_text(json.dumps(vars(totals)) + "\n")
    return min(len(totals.differences), 1)


def _run(options: argparse.Namespace, root: Path) -> Totals:
    totals = Totals(options.seed)
    started = time.monotonic()
    seed = options.seed
    while totals.programs < options.programs:
        program = generate(seed, frozenset(options.without))
        case = folder(root, seed)
        outcome = run(program, options.packets, case)
        totals.add(seed, outcome)
        totals.seconds = round(time.monotonic() - started, 1)
        print(f"seed {seed}: {outcome}", flush=True)
        if outcome.difference:
            print(f"  {outcome.difference}", flush=True)
            if not options.no_shrink:
                print(f"  smaller: {shrink(program, outcome.difference, case)}", flush=True)
        seed += 1
    return totals


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
